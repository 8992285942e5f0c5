// Definitions of saver_core.hpp.
#pragma once

#include "memsaver/arena/graph_keeps.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/plain_blocks.hpp"
#include "memsaver/saver/residency.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"
#include "memsaver/saver/use.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE SaverCore& used(const std::shared_ptr<SaverCore>& core) {
    if (core == nullptr) [[unlikely]]
        misuse({"a MemorySaver that was moved from was used"});
    return *core;
}

MEMSAVER_INLINE std::shared_ptr<SaverCore> SaverCore::make(AnyDriver driver, SaverOptions options) {
    return translated([&] {
        return std::shared_ptr<SaverCore>{new SaverCore{std::move(driver), std::move(options)}, [](SaverCore* core) {
                                              if (!core->forked()) delete core;
                                          }};
    });
}

MEMSAVER_INLINE SaverCore::SaverCore(AnyDriver driver, SaverOptions options)
    : state_{new SaverState{std::move(driver), std::move(options)}} {}

MEMSAVER_INLINE SaverCore::~SaverCore() = default;

MEMSAVER_INLINE void SaverCore::require_may_call(const char* what) const {
    state_->fork_->require_parent(what);
    if (!state_->in_sink_->any() || !state_->in_sink_->here(Running::Kind::sink)) return;
    misuse({what, " inside an event sink: a sink may run while a lock is held, and must not call the saver; keep the "
                  "event, and call after the operation that reports it"});
}

MEMSAVER_INLINE void SaverCore::rethrow_about(const ArenaCore& arena) {
    try {
        rethrow_translated();
    } catch (Error& error) {
        name_tag(error, arena.tag());
        throw;
    }
}

MEMSAVER_INLINE void SaverCore::rethrow_about(const Tags& tags) const {
    try {
        rethrow_translated();
    } catch (Error& error) {
        try {
            name_tag(error, only_tag(tags));
        } catch (const std::bad_alloc&) { // then the error's text has to suffice
        }
        const bool says = dynamic_cast<const OutOfMemory*>(&error) != nullptr || // also NotIdle
                          dynamic_cast<const NotIdle*>(&error) != nullptr;
        if (says && error.holders().empty()) state_->say_who_holds(error);
        throw;
    }
}

// --- what doors name ---

MEMSAVER_INLINE bool evict_for_room(SaverState& state, const OutOfMemory& error, int device, const LackOfRoom& lack) {
    return Residency{state}.make_room(error, device, lack);
}

MEMSAVER_INLINE PlainMemory* make_plain_memory(Directory& directory) { return new PlainBlocks{directory}; }

// --- allocation ---

MEMSAVER_INLINE Arena SaverCore::arena(const WantedTag& given) {
    return boundary("arena", [&] {
        WantedTag wanted = given;
        if (wanted.options) wanted.options->events = state_->watched(std::move(wanted.options->events));
        return naming(std::string{wanted.tag}, [&] {
            const auto member = state_->tags_.get(wanted, [&](ArenaCore& core) {
                // If there is no room, the arena still exists while room is made.
                state_->with_room(SaverState::Tried{core}, [&] { core.reserve(); });
            });
            return Arena{shared_from_this(), member->arena};
        });
    });
}

MEMSAVER_INLINE Arena SaverCore::arena(TagName tag, std::optional<AnyPolicy> policy, std::optional<AnyDriver> driver,
                                       std::optional<ArenaOptions> options) {
    return arena(WantedTag{tag.view(), std::move(policy), std::move(driver), std::move(options), {}});
}

MEMSAVER_INLINE Arena SaverCore::outside() {
    return boundary("outside", [&] {
        std::shared_ptr<ArenaCore> arena = state_->tags_.outside();
        state_->use_plain(&make_plain_memory);
        return Arena{shared_from_this(), std::move(arena)};
    });
}

MEMSAVER_INLINE void SaverCore::leave(const ArenaCore& arena, const void* region) noexcept {
    if (forked()) return;
    const RegionStacks::Left left = state_->regions_.leave(region);
    if (left.how == RegionStacks::Left::How::in_order) return;
    const bool elsewhere = left.how == RegionStacks::Left::How::on_another_thread;
    std::string opener;
    try {
        if (elsewhere && state_->options_.events) opener = left.opener.text();
    } catch (const std::bad_alloc&) { // then the event does not say which thread
    }
    tell(state_->options_.events, EventKind::ignored, arena.tag(), arena.device(),
         {elsewhere ? "a region ended on another thread than it was opened on (" : "a region ended out of order: ",
          opener,
          elsewhere ? "); until then, allocations of the thread that opened it went to its tag"
                    : "one opened after it on the same thread is still open"});
}

MEMSAVER_INLINE void* SaverCore::allocate(const Request& request) {
    require_may_call("allocate");
    if (ArenaCore* arena = state_->regions_.innermost()) return allocate(*arena, request);
    return boundary("allocate", [&]() -> void* {
        const std::size_t elsewhere = state_->regions_.open();
        constexpr const char* none =
            ": this thread has no open region; open one with saver.region(tag), or allocate from an arena";
        if (elsewhere == 0) misuse({request.text(), none});
        misuse({request.text(), none, " (a region applies to the thread that opened it; other threads have ",
                in_digits(elsewhere), " open)"});
    });
}

MEMSAVER_INLINE void* SaverCore::allocate(ArenaCore& arena, const Request& request) {
    return boundary("allocate", arena, [&] {
        PlainMemory* const plain = state_->plain_of(arena);
        void* block = nullptr;
        state_->with_room(SaverState::Tried{arena}, [&] {
            block = plain != nullptr ? plain->allocate(*plain, arena, request) : arena.allocate(request);
        });
        return block;
    });
}

MEMSAVER_INLINE void SaverCore::deallocate(void* pointer, FreeOrder order) {
    if (pointer == nullptr) return;
    require_may_call("deallocate");
    if (const std::shared_ptr<ArenaCore> arena = state_->tags_.find(pointer))
        return deallocate(*arena, pointer, std::move(order));
    boundary("deallocate", [&] {
        misuse({"deallocate(", in_hex(pointer),
                "): no tag of this saver contains this pointer; its tag may have been dropped, it was plain memory "
                "that was freed before, or it belongs to another saver"});
    });
}

MEMSAVER_INLINE void SaverCore::deallocate(ArenaCore& arena, void* pointer, FreeOrder order) {
    boundary("deallocate", arena, [&] {
        try {
            if (pointer != nullptr) state_->free(arena, pointer, std::move(order));
        } catch (const Misuse& misuse) {
            const std::shared_ptr<ArenaCore> other = state_->tags_.find(pointer);
            if (other == nullptr || other.get() == &arena) throw;
            detail::misuse({misuse.what(), "; it belongs to tag ", in_quotes(other->tag())});
        }
    });
}

MEMSAVER_INLINE std::shared_ptr<ElasticRange> SaverCore::reserve(const Arena& arena, std::size_t bytes,
                                                                 std::size_t step, bool whole) {
    // In a forked child the range must not be destroyed: it belongs to the parent.
    const auto leave_to_parent = [fork = state_->fork_, arena](ElasticRange* range) {
        if (!fork->forked()) delete range;
    };
    return {arena.base().reserve_elastic(bytes, step, whole).release(), leave_to_parent};
}

MEMSAVER_INLINE void SaverCore::end(ArenaCore& arena, std::shared_ptr<ElasticRange> range) noexcept {
    if (range == nullptr || forked()) return;
    FreeOrder order;
    const auto graph = state_->adjust_free_order(order, arena);
    range->end_as(order);
    if (graph == nullptr) return;
    try {
        graph->add(range);
        range->end_as({});
        range->keep();
    } catch (const std::bad_alloc&) { // it stays until the arena closes
    }
}

MEMSAVER_INLINE bool SaverCore::owns(const void* pointer) {
    return boundary("owns", [&] {
        const std::shared_ptr<ArenaCore> arena = state_->tags_.find(pointer);
        return arena != nullptr && state_->holds(*arena, pointer, 1);
    });
}

MEMSAVER_INLINE bool SaverCore::any_paused(const void* pointer, std::size_t bytes) {
    return boundary("any_paused", [&] {
        const std::shared_ptr<ArenaCore> arena = state_->tags_.find(pointer);
        return arena != nullptr && arena->holds(pointer, bytes) && !arena->here(pointer, bytes) && !arena->on_its_way();
    });
}

MEMSAVER_INLINE bool SaverCore::here(ArenaCore& arena, const void* pointer, std::size_t bytes) {
    PlainMemory* const plain = state_->plain_of(arena);
    return (plain != nullptr && plain->holds(*plain, arena, pointer, bytes)) || arena.here(pointer, bytes);
}

MEMSAVER_INLINE std::shared_ptr<ArenaCore> SaverCore::holder(const char* what, const void* pointer, std::size_t bytes) {
    return boundary(what, [&] {
        std::shared_ptr<ArenaCore> arena = state_->tags_.find(pointer);
        if (arena != nullptr && bytes != 0 && state_->holds(*arena, pointer, bytes)) return arena;
        misuse({what, " ", in_bytes(bytes), " at ", in_hex(pointer), ": these are not bytes of live blocks"});
    });
}

MEMSAVER_INLINE Arena SaverCore::owner(const char* call, const void* pointer, std::size_t bytes,
                                       std::string_view path) {
    return boundary(call, [&] {
        if (std::shared_ptr<ArenaCore> arena = state_->tags_.find(pointer))
            return Arena{shared_from_this(), std::move(arena)};
        misuse({call, "(", in_hex(pointer), ", ", in_bytes(bytes), path.empty() ? "" : ", ",
                path.empty() ? Bit{""} : in_quotes(path), "): no tag of this saver contains this pointer"});
    });
}

// --- operations ---

MEMSAVER_INLINE Report SaverCore::pause(const Tags& tags, const PauseOptions& options) {
    return boundary("pause", tags, [&]() -> Report {
        state_->refuse_in_hook("pause", tags);
        state_->tags_.require("pause", tags);
        if (!enabled()) return state_->release_leftovers(tags), Report{};
        state_->captures_.refuse("pause");
        state_->tags_.retry_ends();
        PauseEvent event{state_->tags_.names(tags), {}};
        SaverState::Members members = state_->tags_.members(tags);
        const Span pausing = state_->span_of(event.tags, "pause");
        return std::move(state_->with_hooks(&event, nullptr, [&] {
            return state_->pause_now(std::move(members), options, deadline_after(options.timeout));
        }));
    });
}

MEMSAVER_INLINE Report SaverCore::resume(const Tags& tags, const ResumeOptions& options) {
    return boundary("resume", tags, [&]() -> Report {
        state_->refuse_in_hook("resume", tags);
        require_keeps_nothing(options.bytes);
        state_->tags_.require("resume", tags);
        if (!enabled()) return {};
        ResumeEvent event{state_->tags_.names(tags), {}};
        const SaverState::Members members = state_->tags_.members(tags);
        const Span resuming = state_->span_of(event.tags, "resume");
        return std::move(state_->with_hooks(nullptr, &event, [&] {
            return state_->with_room_for_all({nullptr, &tags, options.room_within},
                                             [&] { return state_->resume_now(members, options); });
        }));
    });
}

MEMSAVER_INLINE Report SaverCore::exchange(const Tags& out, const Tags& in, const ExchangeOptions& options) {
    return boundary("exchange", [&]() -> Report {
        state_->refuse_in_hook("exchange", out);
        state_->refuse_in_hook("exchange", in);
        require_keeps_nothing(options.bytes_in);
        state_->tags_.require("exchange", out);
        state_->tags_.require("exchange", in);
        const std::vector<std::string> coming = state_->tags_.names(in);
        for (const std::string& name : state_->tags_.names(out)) {
            if (is_in(coming, name)) misuse_of(name, {"exchange: tag ", in_quotes(name), " is in both lists"});
        }
        if (!enabled()) return {};
        state_->captures_.refuse("exchange");
        state_->tags_.retry_ends();
        PauseEvent going{state_->tags_.names(out), {}};
        ResumeEvent arriving{state_->tags_.names(in), {}};
        const SaverState::Members leaving = state_->tags_.members(out);
        const SaverState::Members entering = state_->tags_.members(in);
        const Span exchanging = state_->span_of(going.tags, "exchange");
        return std::move(state_->with_hooks(&going, &arriving, [&] {
            try {
                return state_->with_room_for_all({&out, &in, options.room_within}, [&] {
                    return state_->exchange_now(leaving, entering, options, deadline_after(options.timeout));
                });
            } catch (NotIdle& busy) {
                if (!busy.report().tags.empty()) busy.append(" since an earlier attempt, which the report shows");
                state_->say_who_holds(busy);
                throw;
            }
        }));
    });
}

MEMSAVER_INLINE Report SaverCore::trim(const Tags& tags, const TrimOptions& options) {
    return boundary("trim", tags, [&]() -> Report {
        state_->tags_.require("trim", tags);
        if (!enabled()) return state_->release_leftovers(tags), Report{};
        const Deadline deadline = deadline_after(options.timeout);
        const std::vector<std::string> names = state_->tags_.names(tags);
        const Span trimming = state_->span_of(names, "trim");
        std::optional<OpenCaptures::KeepOut> no_captures; // the wait below would break captures
        if (options.order.kind() == Order::Kind::device) no_captures.emplace(state_->captures_, "trim");
        state_->tags_.retry_ends();
        SaverState::Members members = state_->tags_.members(tags, true);
        for (const auto& member : members) member->arena->trim_host();
        if (tags.kind() != Tags::Kind::named)
            erase_in(members, [](const auto& member) { return member->arena->idle_for_pause(); });
        SaverState::Turns turns = state_->take_turns(members, deadline, "trim");
        if (no_captures) SaverState::await_copies(members, turns, deadline);
        Vector<TrimStep> steps;
        SaverState::begin_steps(steps, members, turns, 0, members.size());
        Report report = run_release(steps, options.order, deadline, state_->others_for(options.order));
        if (report.released_bytes != 0)
            state_->tell_of(names, EventKind::trimmed, {"trimmed ", in_bytes(report.released_bytes)});
        return report;
    });
}

MEMSAVER_INLINE void SaverCore::prepare(const Tags& tags) {
    boundary("prepare", tags,
             [&] { state_->for_each_left(state_->keeping("prepare", tags), [](ArenaCore& core) { core.prepare(); }); });
}

MEMSAVER_INLINE void SaverCore::invalidate(const Tags& tags) {
    boundary("invalidate", tags, [&] {
        state_->for_each_left(state_->keeping("invalidate", tags), [](ArenaCore& core) { core.invalidate(); });
    });
}

MEMSAVER_INLINE void SaverCore::forget_backup(const Tags& tags) {
    boundary("forget_backup", tags, [&] {
        state_->tags_.require("forget_backup", tags);
        state_->for_each_left(state_->tags_.members(tags), [](ArenaCore& core) { core.forget_backup(); });
    });
}

MEMSAVER_INLINE void SaverCore::drop(const Tags& tags) {
    boundary("drop", tags, [&] {
        state_->refuse_in_hook("drop", tags);
        state_->tags_.require("drop", tags);
        const TagTable::Members members = state_->tags_.members(tags);
        Residents& residents = state_->tags_.residents();
        const Residents::Claim unused{residents, TagTable::residents_of(members), {}, "drop"};
        const OpenCaptures::KeepOut no_captures{state_->captures_, "drop"};
        for (const auto& member : members) residents.set_dropped(*member->arena, true);
        std::exception_ptr first;
        for (const auto& member : members) {
            try {
                state_->tags_.end(member, [&] {
                    if (PlainMemory* const plain = state_->plain_of(*member->arena))
                        check(plain->close(*plain, *member->arena), "free plain memory");
                });
            } catch (const std::exception& error) { // the tag still exists, so that the call can be repeated
                if (!member->arena->closed()) residents.set_dropped(*member->arena, false);
                SaverState::remember(first, *member);
            }
        }
        if (first) std::rethrow_exception(first);
    });
}

MEMSAVER_INLINE std::size_t SaverCore::bytes_to_resume(const Tags& tags) {
    return boundary("bytes_to_resume", tags, [&] {
        state_->tags_.require("bytes_to_resume", tags);
        std::size_t bytes = 0;
        state_->for_each_left(state_->tags_.members(tags), [&](ArenaCore& core) { bytes += core.bytes_to_resume(); });
        return bytes;
    });
}

MEMSAVER_INLINE Usage SaverCore::usage() {
    return boundary("usage", [&] {
        std::vector<ArenaUsage> rows;
        for (const auto& member : state_->tags_.members(Tags::all(), true)) {
            ArenaUsage row = state_->usage_of(*member->arena);
            row.of_a_tag = member->resident != nullptr;
            if (row.of_a_tag) state_->tags_.residents().fill(*member->resident, row);
            if (row.of_a_tag || row.mapped_bytes != 0) rows.push_back(std::move(row));
        }
        std::vector<DeviceUsage> devices;
        for (const AnyDriver& driver : state_->tags_.drivers()) {
            DeviceMemory memory;
            const bool known = driver.memory(memory).ok(); // false for a lost device
            DeviceUsage device{
                driver.device(), memory.total_bytes, memory.total_bytes - memory.free_bytes, 0, 0, known};
            for (const ArenaUsage& row : rows) {
                device.mapped_bytes += row.device == device.device ? row.mapped_bytes : 0;
            }
            device.unexplained_bytes = device.used_bytes - std::min(device.used_bytes, device.mapped_bytes);
            devices.push_back(device);
        }
        return Usage{std::move(rows), std::move(devices), state_->tags_.residents().counts(),
                     state_->tags_.host_bytes()};
    });
}

MEMSAVER_INLINE void SaverCore::set_retain(const Tags& tags, bool yes) {
    boundary("set_retain", tags, [&] {
        const auto members = state_->keeping("set_retain", tags);
        for (const auto set : {std::optional<bool>{}, std::optional{yes}}) { // refused before anything changes
            state_->for_each_left(members, [&](ArenaCore& core) {
                if (core.set_retain(set) || tags.kind() != Tags::Kind::named) return;
                misuse({"set_retain: the policy ", in_quotes(core.policy().name()), " of tag ", in_quotes(core.tag()),
                        " has no retain option"});
            });
        }
    });
}

MEMSAVER_INLINE void SaverCore::set_capacity(const Tags& tags, std::size_t bytes) {
    boundary("set_capacity", tags, [&] {
        state_->tags_.require("set_capacity", tags);
        const TagTable::Members members = state_->tags_.members(tags);
        for (const auto& member : members) { // before any is set
            if (!can_align_up(bytes, member->arena->granularity()))
                misuse_of(member->tag, {"set_capacity of tag ", in_quotes(member->tag), ": ", in_bytes(bytes),
                                        " is too large; 0 means no limit"});
        }
        state_->tags_.set_capacity(members, bytes);
    });
}

MEMSAVER_INLINE void SaverCore::set_margin(std::size_t bytes) {
    boundary("set_margin", [&] {
        state_->tags_.require_open("set_margin");
        state_->tags_.set_margin(bytes);
    });
}

MEMSAVER_INLINE void SaverCore::close() {
    boundary("close", [&] {
        state_->refuse_in_any_hook("close", Tags::all());
        const OpenCaptures::KeepOut no_captures{state_->captures_, "close"};
        state_->tags_.close();
        state_->tags_.residents().close();
        std::exception_ptr first;
        Status status;
        for (const auto& member : state_->tags_.members(Tags::all(), true)) {
            try {
                member->arena->close();
            } catch (const std::exception&) {
                SaverState::remember(first, *member);
            }
            if (PlainMemory* const plain = state_->plain_of(*member->arena)) {
                const Status closed = plain->close(*plain, *member->arena);
                if (status.ok()) status = closed;
            }
        }
        if (first) std::rethrow_exception(first);
        check(status, "free plain memory");
    });
}

// --- residency ---

MEMSAVER_INLINE Use SaverCore::use(const Tags& tags, const UseOptions& options) {
    return boundary("use", tags, [&] {
        state_->refuse_in_any_hook("use", tags);
        for (;;) {
            ResidentList residents = state_->tags_.residents("use", tags);
            if (tags.kind() != Tags::Kind::named) state_->tags_.residents().leave_out_gone(residents);
            try {
                auto record =
                    state_->tags_.residents().try_use(residents, options.await_bytes, state_->captures_.here());
                if (record != nullptr) return Use{shared_from_this(), std::move(record)};
                return Use{shared_from_this(), Residency{*state_}.use(tags, residents, options)};
            } catch (const Misuse&) { // unless they were named, tags dropped meanwhile are left out
                const std::size_t before = residents.size();
                state_->tags_.residents().leave_out_gone(residents);
                if (tags.kind() == Tags::Kind::named || residents.size() == before) throw;
            }
        }
    });
}

MEMSAVER_INLINE Reclaimed SaverCore::reclaim(std::size_t bytes, const ReclaimOptions& options) {
    return boundary("reclaim", [&] {
        state_->refuse_in_any_hook("reclaim", Tags::all());
        state_->tags_.require_open("reclaim");
        const int device = options.device.value_or(state_->driver_.device());
        if (!any_in(state_->tags_.drivers(), [&](const AnyDriver& each) { return each.device() == device; }))
            misuse({"reclaim: this saver has no tag on device ", in_digits(device)});
        if (enabled()) return Residency{*state_}.reclaim(bytes, options);
        Reclaimed none;
        none.wanted_bytes = bytes;
        none.why_not_more = "the saver is switched off";
        return none;
    });
}

MEMSAVER_INLINE void SaverCore::set_evictable(const Tags& tags, bool yes) {
    boundary("set_evictable", tags,
             [&] { state_->tags_.residents().set_evictable(state_->tags_.residents("set_evictable", tags), yes); });
}

MEMSAVER_INLINE void SaverCore::set_priority(const Tags& tags, int priority) {
    boundary("set_priority", tags,
             [&] { state_->tags_.residents().set_priority(state_->tags_.residents("set_priority", tags), priority); });
}

// --- hooks ---

MEMSAVER_INLINE Hook SaverCore::add_hook(HookKind kind, std::function<void(PauseEvent&)> function) {
    static constexpr const char* names[] = {"before_pause", "after_pause", "after_failed_pause", "before_resume",
                                            "after_resume"};
    const char* const what = names[static_cast<unsigned char>(kind)];
    return boundary(what, [&] {
        state_->tags_.require_open(what);
        if (!function) misuse({"an empty function cannot be a hook"});
        return state_->hooks_.add(kind, new_shared<std::function<void(PauseEvent&)>>(std::move(function)));
    });
}

// --- for graphs and adapters ---

MEMSAVER_INLINE const AnyDriver& SaverCore::driver() const noexcept { return state_->driver_; }

MEMSAVER_INLINE bool SaverCore::enabled() const noexcept { return state_->options_.enabled; }

MEMSAVER_INLINE const EventSink& SaverCore::events() const noexcept { return state_->options_.events; }

MEMSAVER_INLINE bool SaverCore::forked() const noexcept { return state_->fork_->forked(); }

MEMSAVER_INLINE Vector<AnyDriver> SaverCore::drivers() {
    return boundary("drivers", [&] { return state_->tags_.drivers(); });
}

MEMSAVER_INLINE void SaverCore::ignore(const ArenaCore& arena, const Status& status, const char* what) const noexcept {
    tell_ignored(state_->options_.events, arena.tag(), arena.device(), status, what);
}

} // namespace memsaver::inline v0_3::detail
