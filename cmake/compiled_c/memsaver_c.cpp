// The C interface on top of the C++ interface: handles, options, results, callbacks. It contains no logic of the saver
// and knows only the two drivers that it creates.
#include "memsaver/c.h"

#include "memsaver/backup/backup.hpp"
#include "memsaver/backup/compressed.hpp"
#ifdef MEMSAVER_C_VERIFIED
#include "memsaver/backup/verified.hpp"
#endif
#include "memsaver/core/core.hpp"
#include "memsaver/driver/driver.hpp"
#include "memsaver/host/host.hpp"
#include "memsaver/interop/no_throw.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/share/share.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace memsaver;

// --- Handles ---

struct OpenRegion {
    detail::ThreadMark thread;
    std::unique_ptr<Region> region;
};

/// Regions in the order in which they were opened. Ends the innermost first.
struct OpenRegions : std::vector<OpenRegion> {
    OpenRegions() = default;
    OpenRegions(OpenRegions&&) = default;
    OpenRegions& operator=(OpenRegions&&) = delete;
    ~OpenRegions() {
        while (!empty()) pop_back();
    }
};

/// How a program selects a device; the options of drivers for other devices.
struct Machine {
    CudaDriverOptions cuda{};
    std::string cuda_library{default_cuda_library};
};

struct memsaver_saver {
    memsaver_saver(MemorySaver<> made, Machine of) : object{std::move(made)}, machine{std::move(of)} {}

    MemorySaver<> object;
    Machine machine;
    std::mutex mutex{};    // guards the members below
    OpenRegions regions{}; // of all threads, some of which may have ended
    std::vector<Hook> hooks{};
};

template <class T>
struct Holds {
    T object;
};
struct memsaver_arena : Holds<Arena> {};
struct memsaver_hook : Holds<Hook> {};
struct memsaver_arrival : Holds<Arrival> {};
struct memsaver_gate : Holds<Gate> {};
struct memsaver_elastic : Holds<Elastic> {};
struct memsaver_lending : Holds<Lending> {};

struct memsaver_use {
    Use object{};
    std::vector<std::string> lost{};
    std::vector<const char*> names{}; // point into `lost`
};

struct memsaver_share {
    Share object;
    Machine machine;
    detail::ForkCheck fork{};
};

struct memsaver_attached {
    std::optional<Attached> object{}; // always, once the handle is given out
    std::vector<AttachedRange> ranges{};
    detail::ForkCheck fork{};
};

namespace {

// --- Failures ---

/// Thrown when a hook of the program returned a nonzero value.
class HookFailed : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// A thread's last failure. Writing it allocates nothing; it needs no destructor.
struct LastError {
    char text[2048];
    char tag[256];
    memsaver_error details; // its strings are static, or `tag`
};

thread_local LastError last_error{"", "", MEMSAVER_ERROR_INIT};

/// Copies as much as fits; cuts only between UTF-8 characters.
template <std::size_t N>
void copy_text(char (&to)[N], std::string_view from) noexcept {
    std::size_t size = std::min(from.size(), N - 1);
    while (size < from.size() && size > 0 && (static_cast<unsigned char>(from[size]) & 0xC0U) == 0x80U) --size;
    if (size != 0) std::memcpy(to, from.data(), size);
    to[size] = '\0';
}

memsaver_result failed(memsaver_result result, std::string_view text, const Error* error = nullptr) noexcept {
    const Status status = error != nullptr ? error->status() : Status{};
    const auto* const room = dynamic_cast<const OutOfMemory*>(error);
    copy_text(last_error.text, text);
    copy_text(last_error.tag, error != nullptr ? std::string_view{error->tag()} : std::string_view{});
    last_error.details = {sizeof(memsaver_error),
                          result,
                          status.code,
                          status.name != nullptr ? status.name : "",
                          last_error.tag,
                          room != nullptr ? room->needed_bytes() : 0,
                          room != nullptr ? room->free_bytes() : 0};
    return result;
}

template <class E>
bool is(const Error& error) noexcept {
    return dynamic_cast<const E*>(&error) != nullptr;
}

/// Each result, by its number: its name, and whether an error is one.
constexpr struct {
    const char* name;
    bool (*has)(const Error&) noexcept;
} results[] = {
    {"MEMSAVER_OK", nullptr},
    {"MEMSAVER_OUT_OF_MEMORY", is<OutOfMemory>},
    {"MEMSAVER_OUT_OF_HOST_MEMORY", is<OutOfHostMemory>},
    {"MEMSAVER_MISUSE", is<Misuse>},
    {"MEMSAVER_NOT_IDLE", is<NotIdle>},
    {"MEMSAVER_DEVICE_LOST", is<DeviceLost>},
    {"MEMSAVER_DRIVER_ERROR", is<DriverError>},
    {"MEMSAVER_UNAVAILABLE", is<Unavailable>},
    {"MEMSAVER_BACKUP_DAMAGED", is<BackupDamaged>},
    {"MEMSAVER_HOOK_FAILED", is<HookFailed>},
    {"MEMSAVER_INTERNAL", nullptr},
    {"MEMSAVER_SOURCE_CHANGED", is<SourceChanged>},
    {"MEMSAVER_OUT_OF_ADDRESSES", is<OutOfAddresses>},
    {"MEMSAVER_PUBLICATION_DAMAGED", is<PublicationDamaged>},
};
static_assert(std::size(results) == MEMSAVER_PUBLICATION_DAMAGED + 1);

memsaver_result failed_with(const Error& error) noexcept {
    const auto* found = std::find_if(std::begin(results), std::end(results),
                                     [&](const auto& each) { return each.has != nullptr && each.has(error); });
    const auto number = found != std::end(results) ? found - results : std::ptrdiff_t{MEMSAVER_INTERNAL};
    return failed(static_cast<memsaver_result>(number), error.what(), &error);
}

thread_local const char* calling; // the function of the interface that this thread is in, for the texts of errors

/// A call of the interface. While it lives, the thread cannot be cancelled (pthread_cancel): a cancelled thread would
/// leave the library's locks taken, and pass through functions that let no exception pass. A cancellation takes effect
/// after the call.
class InCall {
public:
    explicit InCall(const char* function) noexcept : around_{std::exchange(calling, function)} {
        (void)::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    }
    InCall& operator=(InCall&&) = delete;
    ~InCall() {
        (void)::pthread_setcancelstate(before_, nullptr);
        calling = around_;
    }

private:
    const char* around_;
    int before_ = PTHREAD_CANCEL_ENABLE;
};

template <class T>
void end(T* handle) noexcept {
    const InCall call{"the end of a handle"};
    delete handle;
}

/// Calls `act()`, which sets `report`, and converts its exception, if any, to a result. All exceptions are caught here.
/// After a failure, `report` is that of the exception; it is valid in any case.
template <class Act>
memsaver_result reporting(const char* function, Report& report, Act&& act) noexcept {
    const InCall call{function};
    try {
        act();
        return MEMSAVER_OK;
    } catch (const Error& error) {
        const memsaver_result result = failed_with(error);
        try {
            report = error.report();
        } catch (const std::bad_alloc&) { // the report is lost, but not the result
        }
        return result;
    } catch (const std::bad_alloc&) {
        return failed(MEMSAVER_OUT_OF_HOST_MEMORY, "out of host memory for the library's own data structures");
    } catch (const std::exception& other) {
        return failed(MEMSAVER_INTERNAL, other.what());
    } catch (...) {
        return failed(MEMSAVER_INTERNAL, "a callback threw an object that is not a std::exception");
    }
}

template <class Act>
memsaver_result guarded(const char* function, Act&& act) noexcept {
    Report none;
    return reporting(function, none, std::forward<Act>(act));
}

[[noreturn]] void misused(const std::string& text) { throw Misuse{std::string{calling} + ": " + text}; }

/// Returns `pointer`; throws Misuse if it is null.
template <class T>
T* not_null(T* pointer, const char* what) {
    if (pointer == nullptr) misused(std::string{what} + " is null");
    return pointer;
}

// What errors call a handle that is null.
constexpr const char* name_of(const memsaver_saver* /*which*/) noexcept { return "the saver"; }
constexpr const char* name_of(const memsaver_arena* /*which*/) noexcept { return "the arena"; }
constexpr const char* name_of(const memsaver_arrival* /*which*/) noexcept { return "the arrival"; }
constexpr const char* name_of(const memsaver_gate* /*which*/) noexcept { return "the gate"; }
constexpr const char* name_of(const memsaver_use* /*which*/) noexcept { return "the use"; }
constexpr const char* name_of(const memsaver_elastic* /*which*/) noexcept { return "the range"; }
constexpr const char* name_of(const memsaver_share* /*which*/) noexcept { return "the share"; }
constexpr const char* name_of(const memsaver_attached* /*which*/) noexcept { return "the publication"; }

template <class T>
T& given(T* handle) {
    return *not_null(handle, name_of(handle));
}

template <class T>
auto& object_of(T* handle) {
    return given(handle).object;
}
Attached& object_of(memsaver_attached* handle) {
    given(handle).fork.require_parent(calling);
    return *handle->object;
}

// --- Structures with a size field ---

/// A larger size field is invalid.
constexpr std::size_t longest_structure = 4096;

void check_size(std::size_t size, const char* type) {
    if (size >= sizeof(std::size_t) && size <= longest_structure) return;
    throw Misuse{std::string{type} + ": its size field is " + std::to_string(size) +
                 "; initialize it with its MEMSAVER_..._INIT macro"};
}

/// Returns the program's values, with defaults for the fields that its header does not have.
template <class T>
T read(const T* in, T defaults, const char* type) {
    if (in == nullptr) return defaults;
    std::size_t size = 0;
    std::memcpy(&size, in, sizeof size);
    check_size(size, type);
    const auto* bytes = reinterpret_cast<const unsigned char*>(in);
    if (size > sizeof(T) &&
        std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char byte) { return byte != 0; })) {
        throw Misuse{std::string{type} + ": " + std::to_string(size) + " bytes, but this library knows " +
                     std::to_string(sizeof(T)) + "; it is older than the header that the program was compiled with"};
    }
    std::memcpy(&defaults, in, std::min(size, sizeof(T)));
    return defaults;
}

/// An output structure; null for none. Construct it before the operation, because it checks the size field.
template <class T>
class Out {
public:
    Out(T* to, const char* type) : to_{to} {
        if (to == nullptr) return;
        std::memcpy(&size_, to, sizeof size_);
        check_size(size_, type);
    }

    /// Writes the fields that the program's header has and keeps its size field. Zeroes fields unknown to this library.
    void put(T value) const noexcept {
        if (to_ == nullptr) return;
        value.size = size_;
        auto* bytes = reinterpret_cast<unsigned char*>(to_);
        std::memcpy(bytes, &value, std::min(size_, sizeof(T)));
        if (size_ > sizeof(T)) std::memset(bytes + sizeof(T), 0, size_ - sizeof(T));
    }

private:
    T* to_;
    std::size_t size_ = 0;
};

// --- Arguments ---

/// Returns `value`; throws Misuse if it is not below `count`.
std::int32_t enumerator(std::int32_t value, std::int32_t count, const char* what) {
    if (value < 0 || value >= count) throw Misuse{std::string{what} + " cannot be " + std::to_string(value)};
    return value;
}

/// A list of names, or a prefix.
using Names = const char* const*;

Tags tags_of(Names names, std::size_t count) {
    if (names == nullptr) {
        if (count == 0) return Tags::all();
        misused("the list of tags is null, but its count is not 0 (pass 0 for all tags)");
    }
    if (count == MEMSAVER_UNDER) return Tags::under(not_null(names[0], "the prefix"));
    std::vector<std::string_view> list;
    list.reserve(count);
    for (std::size_t i = 0; i < count; ++i) list.emplace_back(not_null(names[i], "the name of a tag"));
    return Tags{list};
}

template <class Policy>
AnyPolicy perhaps_compressed(Policy policy, bool compressed) {
    if (!compressed) return policy;
    return Compressed<Policy>{std::move(policy)};
}

/// Checksums are computed over the uncompressed bytes.
template <class Policy>
AnyPolicy perhaps_verified(Policy policy, const memsaver_policy& from) {
    if (!from.verified) return perhaps_compressed(std::move(policy), from.compressed);
#ifdef MEMSAVER_C_VERIFIED
    return perhaps_compressed(Verified<Policy>{std::move(policy)}, from.compressed);
#else
    throw Unavailable{"memsaver_policy.verified: this library was built without xxHash"};
#endif
}

/// Sets the options that HostBackup, FileBackup and FileSource have in common.
template <class Policy>
Policy with_common(Policy policy, const memsaver_policy& from) {
    policy.retain = from.retain;
    if constexpr (requires { policy.refresh; }) {
        policy.refresh = enumerator(from.refresh, 2, "memsaver_policy.refresh") == MEMSAVER_ONCE ? Refresh::once
                                                                                                 : Refresh::every_pause;
        policy.check = from.check;
    }
    if (from.threads != 0) policy.threads = from.threads;
    if (from.ring_bytes != 0) policy.ring_bytes = from.ring_bytes;
    return policy;
}

std::optional<AnyPolicy> policy_of(const memsaver_policy* in) {
    if (in == nullptr) return {};
    const auto from = read(in, MEMSAVER_POLICY_INIT, "memsaver_policy");
    switch (enumerator(from.kind, 5, "memsaver_policy.kind")) {
    case MEMSAVER_DISCARD: {
        if (from.poison < -1 || from.poison > 255) {
            throw Misuse{"memsaver_policy.poison must be 0 to 255, or -1, not " + std::to_string(from.poison)};
        }
        Discard discard;
        if (from.poison >= 0) discard.poison = static_cast<unsigned char>(from.poison);
        return discard;
    }
    case MEMSAVER_ZERO: return Zero{};
    case MEMSAVER_HOST_BACKUP: {
        HostBackup host = with_common(HostBackup{}, from);
        host.storage = enumerator(from.storage, 2, "memsaver_policy.storage") == MEMSAVER_PAGEABLE ? Storage::pageable
                                                                                                   : Storage::pinned;
        return perhaps_verified(std::move(host), from);
    }
    case MEMSAVER_FILE_SOURCE: return with_common(FileSource{}, from);
    default: {
        FileBackup file = with_common(FileBackup{}, from);
        file.directory = not_null(from.directory, "memsaver_policy.directory, required for a file backup,");
        return perhaps_verified(std::move(file), from);
    }
    }
}

std::optional<std::chrono::nanoseconds> duration_of(std::int64_t count) noexcept {
    return count < 0 ? std::nullopt : std::optional{std::chrono::nanoseconds{count}};
}

/// Converts the order in the options of any operation that waits.
template <class Options>
Order order_of(const Options& from) {
    const std::int32_t order = enumerator(from.order, 3, "memsaver_order");
    if (order != MEMSAVER_AFTER_STREAMS) {
        if (from.stream_count != 0 || from.event_count != 0) {
            misused("streams and events require MEMSAVER_AFTER_STREAMS");
        }
        return order == MEMSAVER_ALREADY_IDLE ? Order{already_idle} : Order{};
    }
    std::vector<StreamRef> streams;
    std::vector<EventRef> events;
    if (from.stream_count != 0) (void)not_null(from.streams, "the list of streams");
    if (from.event_count != 0) (void)not_null(from.events, "the list of events");
    for (std::size_t i = 0; i < from.stream_count; ++i) streams.push_back(StreamRef::from_native(from.streams[i]));
    for (std::size_t i = 0; i < from.event_count; ++i) {
        events.emplace_back(static_cast<CUevent_st*>(not_null(from.events[i], "an event")));
    }
    return Order::after_all(std::move(streams), std::move(events));
}

/// Reads the order and the timeout of the options of any operation that waits.
template <class Options, class From>
Options waiting(const From& from) {
    Options wanted;
    wanted.order = order_of(from);
    wanted.timeout = duration_of(from.timeout_ns);
    return wanted;
}

memsaver_pause_options pause_options(const memsaver_pause_options* options) {
    return read(options, MEMSAVER_PAUSE_OPTIONS_INIT, "memsaver_pause_options");
}

ResumeOptions resume_options_of(const memsaver_resume_options* options) {
    const auto from = read(options, MEMSAVER_RESUME_OPTIONS_INIT, "memsaver_resume_options");
    ResumeOptions wanted;
    wanted.bytes = policy_of(from.bytes);
    wanted.room_within = duration_of(from.room_within_ns);
    return wanted;
}

std::size_t alignment_of(std::size_t alignment) noexcept {
    return alignment != 0 ? alignment : MEMSAVER_DEFAULT_ALIGNMENT;
}

// --- Results for the program ---

memsaver_report report_of(const Report& from) noexcept {
    memsaver_report to{sizeof to,           from.released_bytes,  from.saved_bytes,
                       from.restored_bytes, from.mapped_bytes,    from.handed_bytes,
                       from.held_bytes,     from.elapsed.count(), 0};
    for (const TagReport& row : from.tags) to.waited_ns = std::max<std::int64_t>(to.waited_ns, row.waited.count());
    return to;
}

/// Null: none.
std::string text_of(const char* text) { return text != nullptr ? text : ""; }

// --- The shapes of functions, which pass their own name (`__func__`) for the errors ---

template <class Handle, class Act>
memsaver_result on(const char* function, Handle* handle, Act&& act) noexcept {
    return guarded(function, [&] { act(object_of(handle)); });
}

/// Returns what `test(object)` returns; false after a failure.
template <class Test>
bool holds(const char* function, memsaver_saver* saver, Test&& test) noexcept {
    bool yes = false;
    (void)on(function, saver, [&](auto& of) { yes = test(of); });
    return yes;
}

/// Sets `out` to the pointer that `make()` returns; to null before that.
template <class T, class Make>
memsaver_result making(const char* function, T** out, Make&& make) noexcept {
    if (out != nullptr) *out = nullptr;
    return guarded(function, [&] {
        (void)not_null(out, "the output pointer");
        *out = make();
    });
}
/// Likewise, `make(object)`.
template <class Handle, class T, class Make>
memsaver_result making(const char* function, Handle* handle, T** out, Make&& make) noexcept {
    return making(function, out, [&] { return make(object_of(handle)); });
}

/// Writes the structure, of this `type`, that `tell(object)` returns.
template <class Handle, class T, class Tell>
memsaver_result telling(const char* function, Handle* handle, T* out, const char* type, Tell&& tell) noexcept {
    return on(function, handle, [&](auto& object) {
        const Out<T> to{not_null(out, "the output pointer"), type};
        to.put(tell(object));
    });
}

/// `act(object)` returns a Report; writes this report, or that of the failure, to `out`.
template <class Handle, class Act>
memsaver_result operate(const char* function, Handle* handle, memsaver_report* out, Act&& act) noexcept {
    std::optional<Out<memsaver_report>> to;
    Report report;
    const memsaver_result result = reporting(function, report, [&] {
        to.emplace(out, "memsaver_report");
        report = act(object_of(handle));
    });
    if (to) to->put(report_of(report));
    return result;
}

/// Calls `act(object, tags)`.
template <class Handle, class Act>
memsaver_result on_tags(const char* function, Handle* handle, Names names, std::size_t count, Act&& act) noexcept {
    return on(function, handle, [&](auto& object) { act(object, tags_of(names, count)); });
}

void add(memsaver_usage& sum, const ArenaUsage& row) noexcept {
    ++sum.arenas;
    sum.reserved_bytes += row.reserved_bytes;
    sum.mapped_bytes += row.mapped_bytes;
    sum.held_bytes += row.held_bytes;
    sum.used_bytes += row.used_bytes;
    sum.paused_bytes += row.paused_bytes;
    sum.backed_up_bytes += row.backed_up_bytes;
    sum.blocks += row.blocks;
    sum.peak_mapped_bytes += row.peak_mapped_bytes;
    sum.pauses += row.pauses;
    sum.elastic_bytes += row.elastic_bytes;
}

memsaver_usage sum_of(const Usage& usage, const Tags& tags) {
    const auto has = [](const std::vector<std::string>& list, const std::string& name) {
        return std::find(list.begin(), list.end(), name) != list.end();
    };
    const bool named = tags.kind() == Tags::Kind::named;
    memsaver_usage sum = MEMSAVER_USAGE_INIT;
    std::vector<std::string> known;
    for (const ArenaUsage& row : usage) {
        if (row.of_a_tag) known.push_back(row.tag);
        const bool all = tags.kind() == Tags::Kind::all;
        if (all || (row.of_a_tag && (named ? has(tags.names(), row.tag) : row.tag.starts_with(tags[0])))) add(sum, row);
    }
    for (const std::string& name : tags.names()) {
        if (!named || has(known, name)) continue;
        throw detail::about_tag(
            name, Misuse{"memsaver_get_usage: unknown tag \"" + name + '"' + detail::did_you_mean(name, known)});
    }
    return sum;
}

char* copy_of(const std::string& text) {
    auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc{};
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

// --- Callbacks ---

constexpr bool same(auto here, int in_c) { return static_cast<int>(here) == in_c; }
static_assert(same(EventKind::ignored, MEMSAVER_EVENT_IGNORED) && same(EventKind::retried, MEMSAVER_EVENT_RETRIED) &&
              same(EventKind::trimmed, MEMSAVER_EVENT_TRIMMED) &&
              same(EventKind::fell_back, MEMSAVER_EVENT_FELL_BACK) && same(EventKind::warned, MEMSAVER_EVENT_WARNED) &&
              same(EventKind::began, MEMSAVER_EVENT_BEGAN) && same(EventKind::ended, MEMSAVER_EVENT_ENDED) &&
              same(EventKind::progress, MEMSAVER_EVENT_PROGRESS) && same(NewTags::allowed, MEMSAVER_NEW_TAGS_ALLOWED) &&
              same(NewTags::with_policy, MEMSAVER_NEW_TAGS_WITH_POLICY));

EventSink sink_of(memsaver_event_function function, void* context) {
    if (function == nullptr) return {};
    return [function, context](const Event& event) {
        const memsaver_event told{sizeof told,        static_cast<std::int32_t>(event.kind),
                                  event.device,       event.tag.c_str(),
                                  event.text.c_str(), event.bytes_done,
                                  event.bytes_total};
        function(context, &told);
    };
}

std::function<bool(const NoRoom&)> asker_of(memsaver_no_room_function function, void* context) {
    if (function == nullptr) return {};
    return [function, context](const NoRoom& need) {
        const memsaver_no_room told{sizeof told, need.bytes,       need.free_bytes,
                                    need.device, need.tag.c_str(), need.missing_bytes};
        return function(context, &told) != 0;
    };
}

constexpr const char* moments[] = {"before a pause", "after a pause", "before a resume", "after a resume"};

/// Returns what the hook answers.
using HookCall = std::function<int(const memsaver_hook_event&)>;

template <class What> // PauseEvent, ResumeEvent
std::function<void(What&)> hook_of(std::int32_t moment, HookCall call) {
    return [moment, call = std::move(call)](const What& event) {
        std::vector<const char*> names;
        names.reserve(event.tags.size());
        for (const std::string& tag : event.tags) names.push_back(tag.c_str());
        const memsaver_report report = report_of(event.report);
        const memsaver_hook_event told{sizeof told, moment, names.data(), names.size(), &report};
        if (const int answer = call(told); answer != 0)
            throw HookFailed{std::string{"a hook that runs "} + moments[moment] + " returned " +
                             std::to_string(answer)};
    };
}

/// Adds a hook that answers as `call` does; `has_function`: whether the program gave one.
template <class Call>
memsaver_result add_hook(const char* self, memsaver_saver* saver, std::int32_t moment, bool has_function,
                         memsaver_hook** hook, Call call) noexcept {
    if (hook != nullptr) *hook = nullptr;
    return guarded(self, [&] {
        memsaver_saver& handle = given(saver);
        if (!has_function) misused("the function is null");
        enumerator(moment, 4, "the moment");
        Hook made = moment == MEMSAVER_BEFORE_PAUSE    ? handle.object.before_pause(hook_of<PauseEvent>(moment, call))
                    : moment == MEMSAVER_AFTER_PAUSE   ? handle.object.after_pause(hook_of<PauseEvent>(moment, call))
                    : moment == MEMSAVER_BEFORE_RESUME ? handle.object.before_resume(hook_of<ResumeEvent>(moment, call))
                                                       : handle.object.after_resume(hook_of<ResumeEvent>(moment, call));
        if (hook != nullptr) {
            *hook = new memsaver_hook{{std::move(made)}};
        } else {
            const std::lock_guard lock{handle.mutex};
            handle.hooks.push_back(std::move(made));
        }
    });
}

// --- Regions ---

/// Opens a region of the arena that `make(object)` returns.
template <class Make>
memsaver_result push(const char* function, memsaver_saver* saver, Make&& make) noexcept {
    return on(function, saver, [&](auto& of) {
        OpenRegion open{detail::ThreadMark::here(), std::make_unique<Region>(make(of))};
        const std::lock_guard lock{saver->mutex};
        saver->regions.push_back(std::move(open));
    });
}

void pop(memsaver_saver& handle) {
    handle.object.core()->boundary("pop_region", [] {}); // rejects a forked child, in which the lock may be held
    std::unique_ptr<Region> ending;                      // destroyed after the lock is released
    const std::lock_guard lock{handle.mutex};
    const auto own = std::find_if(handle.regions.rbegin(), handle.regions.rend(),
                                  [](const OpenRegion& each) { return each.thread.is_here(); });
    if (own == handle.regions.rend()) misused("this thread has no open region");
    ending = std::move(own->region);
    handle.regions.erase(std::next(own).base());
}

// --- Drivers ---

Machine machine_of(const memsaver_options& from) {
    Machine machine;
    machine.cuda.rdma = from.rdma;
    machine.cuda.export_handles =
        static_cast<ExportHandles>(enumerator(from.export_handles, 3, "memsaver_options.export_handles"));
    if (from.peer_count != 0) {
        const int* peers = not_null(from.peers, "the list of peers");
        machine.cuda.peers.assign(peers, peers + from.peer_count);
    }
    if (from.cuda_library != nullptr) machine.cuda_library = from.cuda_library;
    return machine;
}

AnyDriver driver_of(const memsaver_options& from, const Machine& machine) {
    const auto host = [&] {
        HostDriverOptions options;
        options.device = from.device;
        if (from.host_granularity != 0) options.granularity = from.host_granularity;
        if (from.host_machine != nullptr) options.machine = from.host_machine;
        return HostDriver{detail::host_capacity_or_default(from.host_capacity), options};
    };
    enumerator(from.driver, 3, "memsaver_options.driver");
    if (from.driver == MEMSAVER_DRIVER_HOST) return host();
    const auto found = CudaDriver::available(from.device, machine.cuda_library.c_str());
    const bool wanted = found || found.problem == CudaProblem::bad_device_number || from.driver == MEMSAVER_DRIVER_CUDA;
    if (!wanted) return host();
    return CudaDriver{from.device, machine.cuda, machine.cuda_library.c_str()};
}

/// Returns the driver of an arena; none if it is the saver's.
std::optional<AnyDriver> driver_for(const memsaver_saver& handle, std::int32_t device) {
    const AnyDriver& own = handle.object.driver();
    if (device == -1 || device == own.device()) return {};
    if (own.host_addressable()) {
        throw Misuse{"memsaver_arena_options.device: a saver on host memory has no device " + std::to_string(device)};
    }
    return CudaDriver{device, handle.machine.cuda, handle.machine.cuda_library.c_str()};
}

Arena arena_of(memsaver_saver* saver, const char* tag, const memsaver_arena_options* options) {
    memsaver_saver& handle = given(saver);
    const char* name = not_null(tag, "the tag");
    const auto from = read(options, MEMSAVER_ARENA_OPTIONS_INIT, "memsaver_arena_options");
    return handle.object.core()->arena(name, policy_of(from.policy), driver_for(handle, from.device),
                                       ArenaOptions{.capacity = from.capacity,
                                                    .reserve = from.reserve,
                                                    .margin = from.margin,
                                                    .evictable = from.evictable,
                                                    .priority = from.priority});
}

/// Allocates from a tag, or from this thread's innermost region if `tag` is null.
void* allocate(MemorySaver<>& saver, const char* tag, std::size_t bytes, std::size_t alignment,
               std::optional<StreamRef> stream) {
    if (bytes == 0) return nullptr;
    const detail::Request request{bytes, alignment_of(alignment), stream};
    if (tag == nullptr) return saver.core()->allocate(request);
    const Arena arena = saver.arena(tag);
    return saver.core()->allocate(arena.base(), request);
}

} // namespace

// --- Results ---

const char* memsaver_result_name(int32_t result) noexcept {
    return 0 <= result && result <= MEMSAVER_PUBLICATION_DAMAGED ? results[result].name : "unknown result";
}

const char* memsaver_last_error() noexcept { return last_error.text; }

memsaver_result memsaver_get_last_error(memsaver_error* error) noexcept {
    return guarded(__func__, [&] {
        const Out<memsaver_error> out{not_null(error, "the output pointer"), "memsaver_error"};
        out.put(last_error.details);
    });
}

int memsaver_version() noexcept { return version.major * 10000 + version.minor * 100 + version.patch; }

#define MEMSAVER_TEXT_OF(number) #number
#define MEMSAVER_TEXT(number) MEMSAVER_TEXT_OF(number)
const char* memsaver_version_text() noexcept {
    return MEMSAVER_TEXT(MEMSAVER_VERSION_MAJOR) "." MEMSAVER_TEXT(MEMSAVER_VERSION_MINOR) "." MEMSAVER_TEXT(
        MEMSAVER_VERSION_PATCH);
}

// --- Savers ---

memsaver_result memsaver_gpu_available(int device) noexcept {
    return guarded(__func__, [&] {
        if (const CudaAvailability found = CudaDriver::available(device); !found) throw Unavailable{found.reason};
    });
}

int memsaver_gpu_count() noexcept {
    int count = 0;
    (void)guarded(__func__, [&] { count = CudaDriver::device_count(); });
    return count;
}

memsaver_result memsaver_create(const memsaver_options* options, memsaver_saver** saver) noexcept {
    return making(__func__, saver, [&] {
        const auto from = read(options, MEMSAVER_OPTIONS_INIT, "memsaver_options");
        SaverOptions wanted;
        wanted.enabled = from.enabled;
        wanted.margin = from.margin;
        wanted.default_policy = policy_of(from.default_policy);
        wanted.new_tags = static_cast<NewTags>(enumerator(from.new_tags, 2, "memsaver_options.new_tags"));
        wanted.evict_for_allocations = from.evict_for_allocations;
        wanted.on_no_room = asker_of(from.on_no_room, from.on_no_room_context);
        wanted.events = sink_of(from.on_event, from.on_event_context);
        std::optional<AnyDriver> driver;
        Machine machine;
        if (from.share != nullptr) {
            from.share->fork.require_parent(calling);
            driver = from.share->object.driver();
            machine = from.share->machine;
        } else {
            machine = machine_of(from);
            driver = driver_of(from, machine);
        }
        return new memsaver_saver{MemorySaver<>{*driver, std::move(wanted)}, std::move(machine)};
    });
}

memsaver_result memsaver_close(memsaver_saver* saver) noexcept {
    return guarded(__func__, [&] {
        memsaver_saver& handle = given(saver);
        handle.object.close();
        OpenRegions ending; // destroyed after the lock is released
        const std::lock_guard lock{handle.mutex};
        ending.swap(handle.regions);
    });
}

void memsaver_destroy(memsaver_saver* saver) noexcept { end(saver); }

memsaver_result memsaver_get_info(memsaver_saver* saver, memsaver_info* info) noexcept {
    return telling(__func__, saver, info, "memsaver_info", [&](auto& of) {
        of.core()->boundary("get_info", [] {}); // rejects a forked child
        const AnyDriver& driver = of.driver();
        memsaver_info told = MEMSAVER_INFO_INIT;
        told.driver = driver.host_addressable() ? MEMSAVER_DRIVER_HOST : MEMSAVER_DRIVER_CUDA;
        told.device = driver.device();
        told.enabled = of.enabled();
        DeviceMemory memory;
        check(driver.granularity(told.granularity), "query the granularity");
        check(driver.memory(memory), "query the device's memory");
        told.free_bytes = memory.free_bytes;
        told.total_bytes = memory.total_bytes;
        copy_text(told.name, driver.name());
        return told;
    });
}

memsaver_result memsaver_set_margin(memsaver_saver* saver, size_t bytes) noexcept {
    return on(__func__, saver, [&](auto& of) { of.set_margin(bytes); });
}

// --- Tags and arenas ---

memsaver_result memsaver_make_tag(memsaver_saver* saver, const char* tag,
                                  const memsaver_arena_options* options) noexcept {
    return guarded(__func__, [&] { (void)arena_of(saver, tag, options); });
}
memsaver_result memsaver_get_arena(memsaver_saver* saver, const char* tag, const memsaver_arena_options* options,
                                   memsaver_arena** arena) noexcept {
    return making(__func__, arena, [&] { return new memsaver_arena{{arena_of(saver, tag, options)}}; });
}
void memsaver_release_arena(memsaver_arena* arena) noexcept { end(arena); }

memsaver_result memsaver_drop(memsaver_saver* saver, Names names, size_t count) noexcept {
    return on_tags(__func__, saver, names, count, [&](auto& of, Tags tags) { of.drop(std::move(tags)); });
}
memsaver_result memsaver_set_capacity(memsaver_saver* saver, Names names, size_t count, size_t bytes) noexcept {
    return on_tags(__func__, saver, names, count,
                   [&](auto& of, Tags tags) { of.set_capacity(std::move(tags), bytes); });
}
memsaver_result memsaver_set_retain(memsaver_saver* saver, Names names, size_t count, bool retain) noexcept {
    return on_tags(__func__, saver, names, count, [&](auto& of, Tags tags) { of.set_retain(std::move(tags), retain); });
}

// --- Blocks ---

memsaver_result memsaver_allocate(memsaver_saver* saver, const char* tag, size_t bytes, size_t alignment,
                                  void** pointer) noexcept {
    return making(__func__, saver, pointer, [&](auto& of) { return allocate(of, tag, bytes, alignment, {}); });
}
memsaver_result memsaver_allocate_on(memsaver_saver* saver, const char* tag, size_t bytes, size_t alignment,
                                     void* stream, void** pointer) noexcept {
    return making(__func__, saver, pointer,
                  [&](auto& of) { return allocate(of, tag, bytes, alignment, StreamRef::from_native(stream)); });
}
memsaver_result memsaver_deallocate(memsaver_saver* saver, void* pointer) noexcept {
    return on(__func__, saver, [&](auto& of) { of.deallocate(pointer); });
}
memsaver_result memsaver_deallocate_on(memsaver_saver* saver, void* pointer, void* stream) noexcept {
    return on(__func__, saver, [&](auto& of) { of.deallocate(pointer, StreamRef::from_native(stream)); });
}
memsaver_result memsaver_deallocate_idle(memsaver_saver* saver, void* pointer) noexcept {
    return on(__func__, saver, [&](auto& of) { of.deallocate(pointer, already_idle); });
}
memsaver_result memsaver_arena_allocate(memsaver_arena* arena, size_t bytes, size_t alignment,
                                        void** pointer) noexcept {
    return making(__func__, arena, pointer,
                  [&](auto& of) { return bytes != 0 ? of.allocate(bytes, alignment_of(alignment)) : nullptr; });
}
memsaver_result memsaver_arena_allocate_on(memsaver_arena* arena, size_t bytes, size_t alignment, void* stream,
                                           void** pointer) noexcept {
    return making(__func__, arena, pointer, [&](auto& of) {
        return bytes != 0 ? of.allocate(bytes, StreamRef::from_native(stream), alignment_of(alignment)) : nullptr;
    });
}
memsaver_result memsaver_arena_deallocate(memsaver_arena* arena, void* pointer) noexcept {
    return on(__func__, arena, [&](auto& of) { of.deallocate(pointer); });
}
memsaver_result memsaver_arena_deallocate_on(memsaver_arena* arena, void* pointer, void* stream) noexcept {
    return on(__func__, arena, [&](auto& of) { of.deallocate(pointer, StreamRef::from_native(stream)); });
}
memsaver_result memsaver_arena_deallocate_idle(memsaver_arena* arena, void* pointer) noexcept {
    return on(__func__, arena, [&](auto& of) { of.deallocate(pointer, already_idle); });
}

bool memsaver_owns(memsaver_saver* saver, const void* pointer) noexcept {
    return holds(__func__, saver, [&](auto& of) { return of.owns(pointer); });
}
bool memsaver_is_paused(memsaver_saver* saver, const void* pointer, size_t bytes) noexcept {
    return holds(__func__, saver, [&](auto& of) { return bytes != 0 && of.core()->any_paused(pointer, bytes); });
}

memsaver_result memsaver_read_backup(memsaver_saver* saver, const void* pointer, size_t bytes, void* to) noexcept {
    return on(__func__, saver, [&](auto& of) {
        (void)not_null(to, "the output pointer");
        const BackupView view = of.backup_view(pointer, bytes);
        if (bytes != 0) std::memcpy(to, view.data(), bytes);
    });
}
memsaver_result memsaver_write_backup(memsaver_saver* saver, void* pointer, const void* from, size_t bytes) noexcept {
    return on(__func__, saver, [&](auto& of) { of.write_backup(pointer, not_null(from, "the source"), bytes); });
}

// --- Regions ---

memsaver_result memsaver_push_region(memsaver_saver* saver, const char* tag) noexcept {
    return push(__func__, saver, [&](auto& of) { return of.arena(not_null(tag, "the tag")); });
}
memsaver_result memsaver_push_arena(memsaver_saver* saver, memsaver_arena* arena) noexcept {
    return push(__func__, saver, [&](auto& of) {
        const Arena& pushed = object_of(arena);
        if (&pushed.saver() != of.core().get()) {
            throw detail::about_tag(pushed.tag(), Misuse{"memsaver_push_arena: tag \"" + pushed.tag() +
                                                         "\": the arena belongs to another saver"});
        }
        pushed.base().require_open(calling);
        return pushed;
    });
}
memsaver_result memsaver_push_outside(memsaver_saver* saver) noexcept {
    return push(__func__, saver, [](auto& of) { return of.core()->outside(); });
}
memsaver_result memsaver_pop_region(memsaver_saver* saver) noexcept {
    return guarded(__func__, [&] { pop(given(saver)); });
}

// --- Pause and resume ---

memsaver_result memsaver_pause(memsaver_saver* saver, Names names, size_t count, const memsaver_pause_options* options,
                               memsaver_report* report) noexcept {
    return operate(__func__, saver, report, [&](auto& of) {
        const memsaver_pause_options from = pause_options(options);
        auto wanted = waiting<PauseOptions>(from);
        wanted.bytes = policy_of(from.bytes);
        return of.pause(tags_of(names, count), wanted);
    });
}

memsaver_result memsaver_resume(memsaver_saver* saver, Names names, size_t count,
                                const memsaver_resume_options* options, memsaver_report* report) noexcept {
    return operate(__func__, saver, report, [&](auto& of) {
        const ResumeOptions wanted = resume_options_of(options);
        return of.resume(tags_of(names, count), wanted);
    });
}

memsaver_result memsaver_exchange(memsaver_saver* saver, Names out_names, size_t out_count, Names in_names,
                                  size_t in_count, const memsaver_exchange_options* options,
                                  memsaver_report* report) noexcept {
    return operate(__func__, saver, report, [&](auto& of) {
        const auto from = read(options, MEMSAVER_EXCHANGE_OPTIONS_INIT, "memsaver_exchange_options");
        const memsaver_pause_options pausing = pause_options(from.pausing);
        const ResumeOptions resuming = resume_options_of(from.resuming);
        auto wanted = waiting<ExchangeOptions>(pausing);
        wanted.bytes_out = policy_of(pausing.bytes);
        wanted.bytes_in = resuming.bytes;
        wanted.room_within = resuming.room_within;
        return of.exchange(tags_of(out_names, out_count), tags_of(in_names, in_count), wanted);
    });
}

memsaver_result memsaver_bytes_to_resume(memsaver_saver* saver, Names names, size_t count, size_t* bytes) noexcept {
    return on(__func__, saver, [&](auto& of) {
        size_t& to = *not_null(bytes, "the output pointer");
        to = of.bytes_to_resume(tags_of(names, count));
    });
}

memsaver_result memsaver_trim(memsaver_saver* saver, Names names, size_t count, const memsaver_pause_options* options,
                              memsaver_report* report) noexcept {
    return operate(__func__, saver, report, [&](auto& of) {
        const auto wanted = waiting<TrimOptions>(pause_options(options));
        return of.trim(tags_of(names, count), wanted);
    });
}

memsaver_result memsaver_prepare(memsaver_saver* saver, Names names, size_t count) noexcept {
    return on_tags(__func__, saver, names, count, [&](auto& of, Tags tags) { of.prepare(std::move(tags)); });
}
memsaver_result memsaver_invalidate(memsaver_saver* saver, Names names, size_t count) noexcept {
    return on_tags(__func__, saver, names, count, [&](auto& of, Tags tags) { of.invalidate(std::move(tags)); });
}
memsaver_result memsaver_forget_backup(memsaver_saver* saver, Names names, size_t count) noexcept {
    return on_tags(__func__, saver, names, count, [&](auto& of, Tags tags) { of.forget_backup(std::move(tags)); });
}
memsaver_result memsaver_invalidate_range(memsaver_saver* saver, const void* pointer, size_t bytes) noexcept {
    return on(__func__, saver, [&](auto& of) { of.invalidate(pointer, bytes); });
}
memsaver_result memsaver_load(memsaver_saver* saver, void* pointer, size_t bytes, const char* path,
                              size_t offset) noexcept {
    return on(__func__, saver, [&](auto& of) { of.load(pointer, bytes, not_null(path, "the path"), offset); });
}

// --- Arrivals and gates ---

memsaver_result memsaver_resume_async(memsaver_saver* saver, Names names, size_t count,
                                      const memsaver_resume_async_options* options,
                                      memsaver_arrival** arrival) noexcept {
    return making(__func__, saver, arrival, [&](auto& of) {
        const auto from = read(options, MEMSAVER_RESUME_ASYNC_OPTIONS_INIT, "memsaver_resume_async_options");
        ResumeAsyncOptions wanted;
        if (from.first_count != 0) {
            (void)not_null(from.first, "the list of first pointers");
            (void)not_null(from.first_bytes, "the list of first sizes");
        }
        for (std::size_t i = 0; i < from.first_count; ++i) wanted.first.push_back({from.first[i], from.first_bytes[i]});
        ResumeOptions resuming = resume_options_of(from.resuming);
        wanted.bytes = std::move(resuming.bytes);
        wanted.room_within = resuming.room_within;
        auto made = std::make_unique<memsaver_arrival>(); // allocated before the operation begins
        made->object = of.resume_async(tags_of(names, count), wanted);
        return made.release();
    });
}

memsaver_result memsaver_save(memsaver_saver* saver, Names names, size_t count, const memsaver_pause_options* options,
                              memsaver_arrival** arrival) noexcept {
    return making(__func__, saver, arrival, [&](auto& of) {
        const auto wanted = waiting<SaveOptions>(pause_options(options));
        auto made = std::make_unique<memsaver_arrival>();
        made->object = of.save(tags_of(names, count), wanted);
        return made.release();
    });
}

memsaver_result memsaver_arrival_before(memsaver_arrival* arrival, void* stream) noexcept {
    return on(__func__, arrival, [&](auto& of) { of.before(StreamRef::from_native(stream)); });
}
memsaver_result memsaver_arrival_before_range(memsaver_arrival* arrival, void* stream, const void* pointer,
                                              size_t bytes) noexcept {
    return on(__func__, arrival, [&](auto& of) { of.before(StreamRef::from_native(stream), pointer, bytes); });
}
memsaver_result memsaver_arrival_wait(memsaver_arrival* arrival, memsaver_report* report) noexcept {
    return operate(__func__, arrival, report, [&](const Arrival& of) {
        of.wait();
        return of.report();
    });
}
memsaver_result memsaver_arrival_wait_range(memsaver_arrival* arrival, const void* pointer, size_t bytes) noexcept {
    return on(__func__, arrival, [&](auto& of) { of.wait(pointer, bytes); });
}
memsaver_result memsaver_arrival_done(memsaver_arrival* arrival, bool* done) noexcept {
    return on(__func__, arrival, [&](auto& of) { *not_null(done, "the output pointer") = of.done(); });
}
void memsaver_end_arrival(memsaver_arrival* arrival) noexcept { end(arrival); }

memsaver_result memsaver_get_gate(memsaver_saver* saver, const void* pointer, size_t bytes,
                                  memsaver_gate** gate) noexcept {
    return making(__func__, saver, gate, [&](auto& of) { return new memsaver_gate{{of.gate(pointer, bytes)}}; });
}
memsaver_result memsaver_gate_before(memsaver_gate* gate, void* stream) noexcept {
    return on(__func__, gate, [&](auto& of) { of.before(StreamRef::from_native(stream)); });
}
void memsaver_release_gate(memsaver_gate* gate) noexcept { end(gate); }

// --- Uses ---

memsaver_result memsaver_begin_use(memsaver_saver* saver, Names names, size_t count,
                                   const memsaver_use_options* options, memsaver_use** use) noexcept {
    return making(__func__, saver, use, [&](auto& of) {
        const auto from = read(options, MEMSAVER_USE_OPTIONS_INIT, "memsaver_use_options");
        auto wanted = waiting<UseOptions>(from);
        wanted.room_within = duration_of(from.room_within_ns);
        wanted.await_bytes = from.await_bytes;
        auto made = std::make_unique<memsaver_use>();
        made->object = of.use(tags_of(names, count), wanted);
        made->lost = made->object.lost();
        for (const std::string& name : made->lost) made->names.push_back(name.c_str());
        return made.release();
    });
}

memsaver_result memsaver_use_until(memsaver_use* use, void* stream) noexcept {
    return on(__func__, use, [&](auto& of) { of.until(StreamRef::from_native(stream)); });
}
memsaver_result memsaver_use_until_event(memsaver_use* use, void* event) noexcept {
    return on(__func__, use,
              [&](auto& of) { of.until(EventRef{static_cast<CUevent_st*>(not_null(event, "the event"))}); });
}
memsaver_result memsaver_use_lost(memsaver_use* use, const char* const** names, size_t* count) noexcept {
    return guarded(__func__, [&] {
        const memsaver_use& of = given(use);
        (void)not_null(names, "the output pointer");
        *not_null(count, "the output pointer for the count") = of.names.size();
        *names = of.names.data();
    });
}
void memsaver_end_use(memsaver_use* use) noexcept { end(use); }

memsaver_result memsaver_set_evictable(memsaver_saver* saver, Names names, size_t count, bool evictable) noexcept {
    return on_tags(__func__, saver, names, count,
                   [&](auto& of, Tags tags) { of.set_evictable(std::move(tags), evictable); });
}
memsaver_result memsaver_set_priority(memsaver_saver* saver, Names names, size_t count, int32_t priority) noexcept {
    return on_tags(__func__, saver, names, count,
                   [&](auto& of, Tags tags) { of.set_priority(std::move(tags), priority); });
}

memsaver_result memsaver_reclaim(memsaver_saver* saver, size_t bytes, const memsaver_reclaim_options* options,
                                 memsaver_reclaimed* reclaimed, char** text) noexcept {
    if (text != nullptr) *text = nullptr;
    return on(__func__, saver, [&](auto& of) {
        const auto from = read(options, MEMSAVER_RECLAIM_OPTIONS_INIT, "memsaver_reclaim_options");
        const Out<memsaver_reclaimed> out{reclaimed, "memsaver_reclaimed"};
        auto wanted = waiting<ReclaimOptions>(from);
        if (from.device != -1) wanted.device = from.device;
        const Reclaimed got = of.reclaim(bytes, wanted);
        out.put({sizeof(memsaver_reclaimed), got.wanted_bytes, got.unused_bytes, got.elastic_bytes, got.evicted_bytes,
                 got.report.saved_bytes});
        if (text == nullptr) return;
        std::ostringstream line;
        line << got;
        *text = copy_of(line.str());
    });
}

// --- Elastic memory ---

memsaver_result memsaver_make_elastic(memsaver_arena* arena, size_t bytes, const memsaver_elastic_options* options,
                                      memsaver_elastic** elastic) noexcept {
    return making(__func__, arena, elastic, [&](auto& of) {
        const auto from = read(options, MEMSAVER_ELASTIC_OPTIONS_INIT, "memsaver_elastic_options");
        ElasticOptions wanted;
        if (from.granularity != 0) wanted.granularity = from.granularity;
        if (from.on_reclaim != nullptr) {
            wanted.on_reclaim = [function = from.on_reclaim, context = from.on_reclaim_context](std::size_t more) {
                return function(context, more);
            };
        }
        return new memsaver_elastic{{of.elastic(bytes, wanted)}};
    });
}

void memsaver_end_elastic(memsaver_elastic* elastic) noexcept { end(elastic); }

memsaver_result memsaver_elastic_commit(memsaver_elastic* elastic, size_t offset, size_t bytes) noexcept {
    return on(__func__, elastic, [&](auto& of) { of.commit(offset, bytes); });
}
memsaver_result memsaver_elastic_release(memsaver_elastic* elastic, size_t offset, size_t bytes,
                                         const memsaver_pause_options* options) noexcept {
    return on(__func__, elastic, [&](auto& of) { of.release(offset, bytes, order_of(pause_options(options))); });
}
memsaver_result memsaver_elastic_resize(memsaver_elastic* elastic, size_t bytes,
                                        const memsaver_pause_options* options) noexcept {
    return on(__func__, elastic, [&](auto& of) { of.resize(bytes, order_of(pause_options(options))); });
}
memsaver_result memsaver_get_elastic_info(memsaver_elastic* elastic, memsaver_elastic_info* info) noexcept {
    return telling(__func__, elastic, info, "memsaver_elastic_info", [](auto& of) -> memsaver_elastic_info {
        return {sizeof(memsaver_elastic_info), of.data(), of.capacity(), of.granularity(), of.committed_bytes()};
    });
}

// --- Hooks ---

memsaver_result memsaver_add_hook(memsaver_saver* saver, int32_t moment, memsaver_hook_function function, void* context,
                                  memsaver_hook** hook) noexcept {
    const auto call = [=](const memsaver_hook_event& event) { return function(context, &event); };
    return add_hook(__func__, saver, moment, function != nullptr, hook, call);
}
memsaver_result memsaver_add_answering_hook(memsaver_saver* saver, int32_t moment,
                                            memsaver_answering_hook_function function, void* context,
                                            memsaver_hook** hook) noexcept {
    const auto call = [=](const memsaver_hook_event& event) {
        std::int32_t answer = -1;
        function(context, &event, &answer);
        return answer;
    };
    return add_hook(__func__, saver, moment, function != nullptr, hook, call);
}
void memsaver_remove_hook(memsaver_hook* hook) noexcept { end(hook); }

// --- Usage ---

memsaver_result memsaver_get_usage(memsaver_saver* saver, Names names, size_t count, memsaver_usage* usage) noexcept {
    return telling(__func__, saver, usage, "memsaver_usage",
                   [&](auto& of) { return sum_of(of.usage(), tags_of(names, count)); });
}
memsaver_result memsaver_get_arena_usage(memsaver_arena* arena, memsaver_usage* usage) noexcept {
    return telling(__func__, arena, usage, "memsaver_usage", [](auto& of) {
        memsaver_usage sum = MEMSAVER_USAGE_INIT;
        const ArenaUsage row = of.usage();
        if (row.state == "dropped") {
            throw detail::about_tag(row.tag,
                                    Misuse{"memsaver_get_arena_usage: tag \"" + row.tag + "\" has been dropped"});
        }
        add(sum, row);
        return sum;
    });
}
memsaver_result memsaver_get_usage_json(memsaver_saver* saver, char** json) noexcept {
    return making(__func__, saver, json, [&](auto& of) { return copy_of(to_json(of.usage())); });
}
void memsaver_free_text(char* text) noexcept { std::free(text); }

// --- Several processes on one device ---

memsaver_result memsaver_join_share(const memsaver_options* device, const memsaver_share_options* options,
                                    memsaver_share** share) noexcept {
    return making(__func__, share, [&] {
        const memsaver_options on = read(device, MEMSAVER_OPTIONS_INIT, "memsaver_options");
        const auto from = read(options, MEMSAVER_SHARE_OPTIONS_INIT, "memsaver_share_options");
        if (on.share != nullptr) misused("the device's options have a share already");
        using std::chrono::milliseconds, std::chrono::nanoseconds;
        const ShareOptions wanted{.name = text_of(from.name),
                                  .priority = from.priority,
                                  .floor = from.floor,
                                  .ceiling = from.ceiling,
                                  .trusted = from.trusted,
                                  .linger = std::chrono::floor<milliseconds>(nanoseconds{from.linger_ns}),
                                  .answer_within =
                                      std::chrono::duration_cast<milliseconds>(nanoseconds{from.answer_within_ns}),
                                  .folder = text_of(from.folder)};
        Machine machine = machine_of(on);
        return new memsaver_share{Share{driver_of(on, machine), wanted}, std::move(machine)};
    });
}

void memsaver_leave_share(memsaver_share* share) noexcept { end(share); }

memsaver_result memsaver_get_members_json(memsaver_share* share, char** json) noexcept {
    return making(__func__, share, json, [&](const Share& of) {
        std::string text;
        for (const ShareMember& row : of.members()) {
            text += (text.empty() ? "[" : ", ") + ("{\"name\":" + detail::json_quoted(row.name)) +
                    ",\"process\":" + std::to_string(row.process) + ",\"priority\":" + std::to_string(row.priority) +
                    ",\"floor\":" + std::to_string(row.floor) + ",\"ceiling\":" + std::to_string(row.ceiling) +
                    ",\"held_bytes\":" + std::to_string(row.held_bytes) +
                    ",\"lends\":" + (row.lends ? "true" : "false") +
                    ",\"published_bytes\":" + std::to_string(row.published_bytes) +
                    ",\"waiting_bytes\":" + std::to_string(row.waiting_bytes) + '}';
        }
        return copy_of((text.empty() ? "[" : text) + ']');
    });
}

memsaver_result memsaver_lend(memsaver_share* share, memsaver_saver* saver, memsaver_lending** lending) noexcept {
    return making(__func__, share, lending,
                  [&](const Share& of) { return new memsaver_lending{{of.lend(object_of(saver))}}; });
}

void memsaver_end_lending(memsaver_lending* lending) noexcept { end(lending); }

memsaver_result memsaver_publish(memsaver_share* share, const char* name, memsaver_saver* saver, const char* tag,
                                 const memsaver_publish_options* options, uint64_t* hash) noexcept {
    return on(__func__, share, [&](auto& of) {
        MemorySaver<>& publisher = object_of(saver);
        const auto from = read(options, MEMSAVER_PUBLISH_OPTIONS_INIT, "memsaver_publish_options");
        PublishOptions wanted;
        wanted.version = text_of(from.version);
        for (std::size_t i = 0; i < from.count; ++i) {
            const char* const* names = not_null(from.names, "the list of names");
            const void* const* data = not_null(from.data, "the list of pointers");
            const std::size_t* bytes = not_null(from.bytes, "the list of sizes");
            const bool copied = from.copied != nullptr && from.copied[i];
            wanted.names.push_back({not_null(names[i], "the name of a range"), data[i], bytes[i],
                                    copied ? PublishAccess::copied : PublishAccess::shared});
        }
        const std::uint64_t made = of.publish(not_null(name, "the name"), publisher, not_null(tag, "the tag"), wanted);
        if (hash != nullptr) *hash = made;
    });
}

memsaver_result memsaver_withdraw(memsaver_share* share, const char* name) noexcept {
    return on(__func__, share, [&](const Share& of) { of.withdraw(not_null(name, "the name")); });
}

memsaver_result memsaver_attach(memsaver_share* share, const char* name, memsaver_saver* saver,
                                const memsaver_attach_options* options, memsaver_attached** attached) noexcept {
    return making(__func__, share, attached, [&](auto& of) {
        MemorySaver<>& reader = object_of(saver);
        const auto from = read(options, MEMSAVER_ATTACH_OPTIONS_INIT, "memsaver_attach_options");
        AttachOptions wanted;
        wanted.version = text_of(from.version);
        if (from.hash != nullptr) wanted.hash = *from.hash;
        auto made = std::make_unique<memsaver_attached>();
        made->object = of.attach(not_null(name, "the name"), reader, wanted);
        try {
            made->ranges = made->object->ranges();
        } catch (...) {
            reader.drop(made->object->tag());
            throw;
        }
        return made.release();
    });
}

void memsaver_release_attached(memsaver_attached* attached) noexcept { end(attached); }

memsaver_result memsaver_get_attached_info(memsaver_attached* attached, memsaver_attached_info* info) noexcept {
    return telling(__func__, attached, info, "memsaver_attached_info", [](auto& of) -> memsaver_attached_info {
        return {sizeof(memsaver_attached_info), of.tag().c_str(), of.hash()};
    });
}
memsaver_result memsaver_attached_at(memsaver_attached* attached, const char* name,
                                     memsaver_attached_range* range) noexcept {
    return telling(__func__, attached, range, "memsaver_attached_range", [&](auto& of) {
        const AttachedRange found = of.at(not_null(name, "the name"));
        void* const writable = found.access == PublishAccess::copied ? found.writable() : nullptr;
        return memsaver_attached_range{sizeof(memsaver_attached_range), found.data, writable, found.bytes};
    });
}
memsaver_result memsaver_attached_name(memsaver_attached* attached, size_t index, const char** name) noexcept {
    return guarded(__func__, [&] {
        (void)object_of(attached);
        const std::vector<AttachedRange>& all = attached->ranges;
        *not_null(name, "the output pointer") = index < all.size() ? all[index].name.c_str() : nullptr;
    });
}
memsaver_result memsaver_attached_verify(memsaver_attached* attached) noexcept {
    return on(__func__, attached, [](const Attached& of) { of.verify(); });
}

// --- PyTorch ---

namespace {

/// The blocks allocated for PyTorch, whose allocator functions have no context argument. One per process.
class TorchBlocks {
public:
    /// Records a block and keeps its arena. If it throws bad_alloc, nothing has been recorded.
    void add(void* pointer, const Arena& arena) {
        Arena before = arena; // ended without the lock: the end of the last arena is that of its saver, which waits
        const std::lock_guard lock{mutex_};
        Block& block = blocks_[pointer];
        std::swap(block.arena, before); // if the address is already recorded, that block has been freed by a drop
        block.owners += 1;
    }
    /// Removes one owner of a block. Returns its arena after the last one; none while the address has other owners.
    std::optional<Arena> remove(void* pointer) noexcept {
        const std::lock_guard lock{mutex_};
        const auto found = blocks_.find(pointer);
        if (found == blocks_.end() || --found->second.owners != 0) return {};
        std::optional<Arena> arena{std::move(found->second.arena)};
        blocks_.erase(found);
        return arena;
    }

private:
    /// Addresses of a dropped tag may be allocated again while PyTorch still holds them. The order of the frees is
    /// unknown, so only the last one frees the block.
    struct Block {
        Arena arena;
        std::size_t owners = 0;
    };

    friend struct ForkedWhole;

    std::mutex mutex_;
    std::map<void*, Block> blocks_;
};

/// Never destroyed: PyTorch frees blocks until the process ends. Made when the library is loaded.
TorchBlocks& torch_blocks = *new TorchBlocks;

/// A forked child has only the thread that forked, so no other may hold the lock then: PyTorch's data loaders free
/// their parent's blocks, and may have savers of their own.
const struct ForkedWhole {
    ForkedWhole() noexcept {
        const auto unlock = [] { torch_blocks.mutex_.unlock(); };
        (void)::pthread_atfork([] { torch_blocks.mutex_.lock(); }, unlock, unlock);
    }
} forked_whole;

thread_local std::vector<Arena> torch_arenas;

} // namespace

memsaver_result memsaver_torch_push(memsaver_arena* arena) noexcept {
    return guarded(__func__, [&] { torch_arenas.push_back(given(arena).object); });
}
memsaver_result memsaver_torch_pop(void) noexcept {
    return guarded(__func__, [&] {
        if (torch_arenas.empty()) misused("this thread has pushed no arena");
        torch_arenas.pop_back();
    });
}

void* memsaver_torch_allocate(ptrdiff_t bytes, int device, void* /*stream*/) noexcept {
    void* pointer = nullptr;
    if (bytes <= 0) return pointer;
    (void)guarded(__func__, [&] {
        if (torch_arenas.empty()) misused("this thread has pushed no arena");
        const Arena& arena = torch_arenas.back();
        if (arena.device() != device) {
            misused("memory on device " + std::to_string(device) + " was requested from tag \"" + arena.tag() +
                    "\" on device " + std::to_string(arena.device()));
        }
        void* const made = arena.allocate(static_cast<std::size_t>(bytes), 512);
        try {
            torch_blocks.add(made, arena);
        } catch (...) {
            arena.deallocate(made, already_idle);
            throw;
        }
        pointer = made;
    });
    return pointer;
}

void memsaver_torch_free(void* pointer, ptrdiff_t /*bytes*/, int /*device*/, void* stream) noexcept {
    if (pointer == nullptr) return;
    const InCall call{__func__};
    const std::optional<Arena> arena = torch_blocks.remove(pointer);
    if (arena) deallocate_or_report(*arena, pointer, StreamRef::from_native(stream));
}
