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
#include <type_traits>
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

inline constexpr std::size_t page = 2_MiB;
inline char some_host_bytes[16] = {};

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
            (hear<P>(arguments), ...);
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
    void name_addresses(Address, std::size_t bytes, const char*) noexcept override { state.heard += text(bytes); }
    Status owns_event(EventRef event, bool& yes) noexcept override { return made(&Device::owns_event)(event, yes); }
#define MEMSAVER_MADE(name, parameters, arguments, ...)                                                                \
    Status name parameters noexcept override { return made(&Device::name) arguments; }
    MEMSAVER_MACHINE_CALLS(MEMSAVER_MADE, MEMSAVER_MADE)
    MEMSAVER_SYSTEM_CALLS(MEMSAVER_MADE)
#undef MEMSAVER_MADE

private:
    template <class P>
    static constexpr bool is_result = std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;

    static std::string text(const void* pointer) { return text(reinterpret_cast<std::uintptr_t>(pointer)); }
    static std::string text(const char* path) { return std::string{path} + ' '; }
    static std::string text(PageHandle pages) { return text(pages.value); }
    static std::string text(StreamRef stream) { return text(stream.native()); }
    static std::string text(EventRef event) { return text(event.native()); }
    static std::string text(GraphRef graph) { return text(graph.native); }
    static std::string text(PoolRef pool) { return pool.graphs() ? "graphs " : text(pool.native()); }
    static std::string text(FileRef file) { return text(file.descriptor); }
    static std::string text(const KernelRun& run) { return text(run.blocks) + text(run.reads.bytes); }
    static std::string text(const CopyPart* parts) { return text(parts->bytes); }
    template <class N>
    requires(std::integral<N> || std::is_enum_v<N>) static std::string text(N number) {
        return std::to_string(static_cast<std::uint64_t>(number)) + ' ';
    }
    template <class P, class T>
    void hear(const T& argument) {
        if constexpr (!is_result<P>) state.heard += text(argument);
    }

    void set(bool& yes) { yes = true; }
    void set(int& number) { number = static_cast<int>(fresh()); }
    void set(std::size_t& address_or_bytes) { address_or_bytes = fresh() << 40; }
    void set(void*& pages) { pages = reinterpret_cast<void*>(fresh() << 40); }
    void set(StreamRef& stream) { stream = reinterpret_cast<HostStream*>(fresh() << 4); }
    void set(EventRef& event) { event = reinterpret_cast<HostEvent*>(fresh() << 4); }
    void set(GraphRef& graph) { graph.native = reinterpret_cast<void*>(fresh() << 4); }
    void set(FileRef& file) { file = {static_cast<int>(fresh()), true}; }
    void set(PageHandle& pages) { pages = {fresh()}; }
    void set(DeviceMemory& memory) { memory = {fresh(), fresh()}; }
    void set(FileFacts& facts) { facts.bytes = fresh(); }
    template <class P, class T>
    void give(T& result) {
        if constexpr (is_result<P>) set(result);
    }
    std::uint64_t fresh() noexcept { return state.next++; }
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
    std::string outputs; ///< outputs that no later call takes as input
};

/// `one_of_each` releases pages four times, and closes a file twice.
inline constexpr std::size_t calls_of_each = call_kinds + 4;

/// Makes valid calls of each kind, and ends with nothing held.
template <class D>
OneOfEach one_of_each(const D& driver) {
    std::vector<Call> failed;
    std::string outputs;
    const auto gave = [&](std::size_t value) { outputs += std::to_string(value) + ' '; };
    const auto made = [&](Call call, Status status) {
        if (!status.ok()) failed.push_back(call);
    };
    std::size_t bytes = 0;
    DeviceMemory memory;
    Address address = 0;
    Address plain = 0;
    PageHandle handle;
    StreamRef stream;
    EventRef event;
    GraphRef graph;
    bool yes = false;
    StreamRef lane;
    void* pages = nullptr;
    FileRef file;
    made(Call::granularity, driver.granularity(bytes));
    gave(bytes);
    made(Call::memory, driver.memory(memory));
    gave(memory.free_bytes);
    made(Call::reserve, driver.reserve(page, 2 * page, address));
    made(Call::create, driver.create(page, handle));
    made(Call::map, driver.map(address, page, handle));
    made(Call::allow_access, driver.allow_access(address, page));
    made(Call::open_stream, driver.open_stream(stream));
    made(Call::open_event, driver.open_event(stream, event));
    made(Call::record, driver.record(event, stream));
    made(Call::record_device, driver.record_device(event));
    made(Call::follow, driver.follow(stream, event));
    made(Call::query, driver.query(event, yes));
    gave(yes ? 1 : 0);
    made(Call::wait, driver.wait(event));
    made(Call::drain, driver.drain());
    yes = false;
    made(Call::capturing, driver.capturing(stream, yes));
    gave(yes ? 1 : 0);
    made(Call::copy_to_host, driver.copy_to_host(some_host_bytes, address, sizeof some_host_bytes, stream));
    made(Call::copy_to_device, driver.copy_to_device(address, some_host_bytes, sizeof some_host_bytes, stream));
    made(Call::fill, driver.fill(address, 7, page, stream));
    made(Call::reach_peer, driver.reach_peer(address, page));
    made(Call::copy_peer, driver.copy_peer(address, address + page, 64, stream));
    const CopyPart part{address, address + page, 64};
    made(Call::copy_many, driver.copy_many(Direction::in, &part, 1, stream));
    made(Call::copy_by_kernel, driver.copy_by_kernel(address, address + page, 64, stream));
    made(Call::run_kernel, driver.run_kernel({.code = nullptr, .blocks = 7, .reads = {address, page}}, stream));
    made(Call::allocate_plain, driver.allocate_plain(64, plain));
    made(Call::free_plain, driver.free_plain(plain));
    made(Call::begin_capture, driver.begin_capture(stream, CaptureMode::relaxed));
    made(Call::end_capture, driver.end_capture(stream, graph));
    made(Call::update_graph, driver.update_graph(stream, graph));
    made(Call::launch, driver.launch(graph, stream));
    made(Call::close_graph, driver.close_graph(graph));
    made(Call::follow_outside, driver.follow_outside(stream, event));
    made(Call::close_event, driver.close_event(event));
    made(Call::close_stream, driver.close_stream(stream));
    made(Call::unmap, driver.unmap(address, page));
    made(Call::release, driver.release(handle));
    made(Call::unreserve, driver.unreserve(address, page));
    PageHandle more;
    int descriptor = 0;
    made(Call::ask_for_room, driver.ask_for_room(2 * page, 5));
    made(Call::take, driver.take(page, more, bytes));
    gave(bytes);
    made(Call::release, driver.release(more));
    made(Call::create_shared, driver.create_shared(page, more));
    made(Call::export_pages, driver.export_pages(more, descriptor));
    made(Call::release, driver.release(more));
    made(Call::import_pages, driver.import_pages(descriptor, more));
    made(Call::release, driver.release(more));
    made(Call::lane, driver.lane(Direction::in, lane));
    gave(reinterpret_cast<std::size_t>(lane.native()));
    yes = false;
    made(Call::owns_stream, driver.owns_stream(stream, yes));
    gave(yes ? 1 : 0);
    made(Call::pool_memory, driver.pool_memory({}, bytes));
    gave(bytes);
    made(Call::trim_pool, driver.trim_pool(PoolRef::of_graphs(), 9));
    made(Call::host_available, driver.host_available(bytes));
    gave(bytes);
    made(Call::map_host, driver.map_host(page, pages));
    made(Call::populate_host, driver.populate_host(pages, page));
    made(Call::pin_host, driver.pin_host(pages, page));
    made(Call::unpin_host, driver.unpin_host(pages));
    made(Call::unmap_host, driver.unmap_host(pages, page));
    made(Call::open_file, driver.open_file("/", file));
    made(Call::allocate_file, driver.allocate_file(file, 4096, page));
    made(Call::write_file, driver.write_file(file, some_host_bytes, sizeof some_host_bytes, 4096));
    made(Call::read_file, driver.read_file(file, some_host_bytes, sizeof some_host_bytes, 8192));
    made(Call::punch_file, driver.punch_file(file, 4096, page));
    made(Call::close_file, driver.close_file(file));
    FileFacts facts;
    made(Call::open_source, driver.open_source("model", true, file));
    made(Call::file_facts, driver.file_facts(file, facts));
    gave(static_cast<std::size_t>(facts.bytes));
    yes = false;
    made(Call::file_cached, driver.file_cached(file, page, 4096, yes));
    gave(yes ? 1 : 0);
    made(Call::close_file, driver.close_file(file));
    return {failed, outputs};
}
} // namespace test
