// A driver that performs no checks, so that only the layer around it can detect an error.
#pragma once

#include "memsaver/testing/testing.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

inline constexpr std::size_t page = 2_MiB;

/// Values of the types of parameters: by number, and as text.
namespace call_values {

/// Whether a call returns something in a parameter of this type.
template <class P>
inline constexpr bool is_result = std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;

inline std::string text(const void* pointer) { return std::to_string(reinterpret_cast<std::uintptr_t>(pointer)) + ' '; }
inline std::string text(const char* path) { return std::string{path} + ' '; }
template <class N>
requires(std::integral<N> || std::is_enum_v<N>) std::string text(N number) {
    return std::to_string(static_cast<std::uint64_t>(number)) + ' ';
}
inline std::string text(PageHandle pages) { return text(pages.value); }
inline std::string text(StreamRef stream) { return text(stream.native()); }
inline std::string text(EventRef event) { return text(event.native()); }
inline std::string text(GraphRef graph) { return text(graph.native); }
inline std::string text(PoolRef pool) { return pool.graphs() ? "graphs " : text(pool.native()); }
inline std::string text(FileRef file) { return text(file.descriptor); }
inline std::string text(const KernelRun& run) { return text(run.blocks) + text(run.reads.bytes); }
inline std::string text(const CopyPart* parts) { return text(parts->bytes); }
inline std::string text(const DeviceMemory& memory) { return text(memory.free_bytes) + text(memory.total_bytes); }
inline std::string text(const FileFacts& facts) { return text(facts.bytes); }

inline void set(bool& yes, std::uint64_t) { yes = true; }
inline void set(int& number, std::uint64_t n) { number = static_cast<int>(n); }
inline void set(std::size_t& address_or_bytes, std::uint64_t n) { address_or_bytes = n << 40; }
inline void set(void*& pages, std::uint64_t n) { pages = reinterpret_cast<void*>(n << 40); }
inline void set(StreamRef& stream, std::uint64_t n) { stream = reinterpret_cast<HostStream*>(n << 4); }
inline void set(EventRef& event, std::uint64_t n) { event = reinterpret_cast<HostEvent*>(n << 4); }
inline void set(GraphRef& graph, std::uint64_t n) { graph.native = reinterpret_cast<void*>(n << 4); }
inline void set(PoolRef& pool, std::uint64_t) { pool = PoolRef::of_graphs(); }
inline void set(FileRef& file, std::uint64_t n) { file = {static_cast<int>(n), true}; }
inline void set(PageHandle& pages, std::uint64_t n) { pages = {n}; }
inline void set(DeviceMemory& memory, std::uint64_t n) { memory = {n, n + 1}; }
inline void set(FileFacts& facts, std::uint64_t n) { facts.bytes = n; }
inline void set(KernelRun& run, std::uint64_t n) {
    static constexpr KernelCode code{"name", "text", nullptr};
    run = {.code = &code, .blocks = 7, .reads = {n, n}};
}

/// Sets an argument of a call: a small number where it may be one.
template <class T>
void set_argument(T& value, std::uint64_t n) {
    static const CopyPart parts[8]{{1, 2, 3}};
    if constexpr (std::is_same_v<T, const CopyPart*>)
        value = parts;
    else if constexpr (std::is_same_v<T, const char*>)
        value = "/path";
    else if constexpr (std::is_pointer_v<T>)
        value = reinterpret_cast<T>(n << 12);
    else if constexpr (std::is_enum_v<T>)
        value = static_cast<T>(n % 2);
    else if constexpr (std::is_integral_v<T>)
        value = static_cast<T>(n);
    else
        set(value, n);
}
} // namespace call_values

/// Returns fresh values, accepts everything, notes arguments, counts the calls, and returns `answer` where instructed
/// to.
struct GullibleMachine final : Device {
    struct State {
        std::atomic<std::uint64_t> next{1};
        std::atomic<int> made{0};
        Status answer{};
        std::mutex mutex;
        std::string heard; ///< the arguments
    };
    State state;

private:
    template <class... P>
    auto made(Status (Device::*)(P...) noexcept) noexcept {
        return [this](P... arguments) noexcept {
            const std::lock_guard lock{state.mutex};
            ((state.heard += call_values::is_result<P> ? "" : call_values::text(arguments)), ...);
            ++state.made;
            if (state.answer.ok()) (give<P>(arguments), ...);
            return state.answer;
        };
    }

public:
    [[nodiscard]] int device() const noexcept override { return 3; }
    [[nodiscard]] int numa_node() const noexcept override { return 5; }
    [[nodiscard]] std::string name() const override { return "gullible"; }
    Features features() const noexcept override {
        return {.lanes = true,
                .stream_owners = true,
                .event_owners = true,
                .peers = true,
                .batch_copies = true,
                .kernel_copies = true,
                .kernels = true,
                .plain = true,
                .captures = true,
                .gates = true,
                .pools = true,
                .exports = true,
                .takes = true,
                .asks = true};
    }
    void name_addresses(Address, std::size_t bytes, const char*) noexcept override {
        state.heard += call_values::text(bytes);
    }
    Status owns_event(EventRef event, bool& yes) noexcept override { return made(&Device::owns_event)(event, yes); }
#define MEMSAVER_MADE(name, parameters, arguments, ...)                                                                \
    Status name parameters noexcept override { return made(&Device::name) arguments; }
    MEMSAVER_MACHINE_CALLS(MEMSAVER_MADE, MEMSAVER_MADE)
    MEMSAVER_SYSTEM_CALLS(MEMSAVER_MADE)
#undef MEMSAVER_MADE

private:
    template <class P, class T>
    void give(T& result) {
        if constexpr (call_values::is_result<P>) call_values::set(result, state.next++);
    }
};

/// Its handle.
struct Gullible : AnyDriver {
    Gullible() : AnyDriver{std::make_shared<GullibleMachine>()} {}
    static std::optional<Gullible> from(const AnyDriver& driver) {
        if (dynamic_cast<const GullibleMachine*>(&driver.machine()) == nullptr) return std::nullopt;
        return Gullible{driver};
    }
    [[nodiscard]] GullibleMachine::State& state() const noexcept {
        return static_cast<GullibleMachine&>(machine()).state;
    }

private:
    explicit Gullible(const AnyDriver& driver) : AnyDriver{driver} {}
};

struct OneOfEach {
    std::vector<Call> failed;
    std::vector<StatusKind> kinds; ///< of each call
    std::string results;
};

/// Makes each call once, with arguments that differ from each other and are the same each time: no program would make
/// these calls. Without `system` none that only the operating system answers.
template <class D>
OneOfEach one_of_each(const D& driver, bool system = true) {
    OneOfEach all;
    const auto make = [&]<class... P>(Call call, Status (Device::*)(P...) noexcept, auto act) {
        std::tuple<std::remove_cvref_t<P>...> values{};
        std::apply(
            [&](auto&... value) {
                std::uint64_t n = 0;
                (call_values::set_argument(value, ++n), ...);
                all.kinds.push_back(act(value...).kind);
                if (all.kinds.back() != StatusKind::ok) all.failed.push_back(call);
                ((all.results += call_values::is_result<P> ? call_values::text(value) : ""), ...);
            },
            values);
    };
#define MEMSAVER_MAKE(name, ...)                                                                                       \
    make(Call::name, &Device::name, [&](auto&... values) { return driver.name(values...); });
    MEMSAVER_MACHINE_CALLS(MEMSAVER_MAKE, MEMSAVER_MAKE)
    if (!system) return all;
    MEMSAVER_SYSTEM_CALLS(MEMSAVER_MAKE)
#undef MEMSAVER_MAKE
    return all;
}
} // namespace test
