// A driver that performs no checks, so that only the layer around it can detect an error.
#pragma once

#include "memsaver/testing/testing.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

inline constexpr std::size_t page = 2_MiB;
inline char some_host_bytes[16] = {};

/// Returns fresh values, accepts everything, counts the calls, and returns `answer` where instructed to.
struct GullibleMachine final : Device {
    struct State {
        std::atomic<std::uint64_t> next{1};
        std::atomic<int> made{0};
        Status answer{};
        std::mutex mutex;
        std::string heard; ///< the arguments that a CallRecord lacks
    };
    State state;

    [[nodiscard]] int device() const noexcept override { return 3; }
    [[nodiscard]] int numa_node() const noexcept override { return 5; }
    [[nodiscard]] std::string name() const override { return "gullible"; }

    Status granularity(std::size_t& bytes) noexcept override {
        return made([&] { bytes = page; });
    }
    Status memory(DeviceMemory& memory) noexcept override {
        return made([&] { memory = {1_GiB, 2_GiB}; });
    }
    Status reserve(std::size_t, std::size_t alignment, Address& address) noexcept override {
        hear("aligned", alignment);
        return made([&] { address = fresh() << 40; });
    }
    Status unreserve(Address, std::size_t) noexcept override { return made(); }
    Status create(std::size_t, PageHandle& handle) noexcept override {
        return made([&] { handle = {fresh()}; });
    }
    Status release(PageHandle) noexcept override { return made(); }
    Status map(Address, std::size_t, PageHandle) noexcept override { return made(); }
    Status unmap(Address, std::size_t) noexcept override { return made(); }
    Status allow_access(Address, std::size_t, Rights) noexcept override { return made(); }

    Status open_stream(StreamRef& stream) noexcept override {
        return made([&] { stream = reinterpret_cast<HostStream*>(fresh() << 4); });
    }
    Status close_stream(StreamRef) noexcept override { return made(); }
    Status open_event(StreamRef, EventRef& event) noexcept override {
        return made([&] { event = reinterpret_cast<HostEvent*>(fresh() << 4); });
    }
    Status close_event(EventRef) noexcept override { return made(); }
    Status record(EventRef, StreamRef) noexcept override { return made(); }
    Status record_device(EventRef) noexcept override { return made(); }
    Status follow(StreamRef, EventRef) noexcept override { return made(); }
    Status query(EventRef, bool& passed) noexcept override {
        return made([&] { passed = true; });
    }
    Status wait(EventRef) noexcept override { return made(); }
    Status drain() noexcept override { return made(); }
    Status capturing(StreamRef, bool& yes) noexcept override {
        return made([&] { yes = true; });
    }

    Status copy_to_host(void*, Address, std::size_t, StreamRef) noexcept override { return made(); }
    Status copy_to_device(Address, const void*, std::size_t, StreamRef) noexcept override { return made(); }
    Status fill(Address, unsigned char byte, std::size_t, StreamRef) noexcept override {
        hear("byte", byte);
        return made();
    }

    Status reach_peer(Address, std::size_t) noexcept override { return made(); }
    Status copy_peer(Address, Address, std::size_t, StreamRef) noexcept override { return made(); }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef) noexcept override {
        hear("direction", static_cast<std::size_t>(direction));
        hear("parts", count + parts->bytes);
        return made();
    }
    Status copy_by_kernel(Address, Address, std::size_t, StreamRef) noexcept override { return made(); }
    Status run_kernel(const KernelRun& run, StreamRef) noexcept override {
        hear("blocks", run.blocks);
        return made();
    }
    Status allocate_plain(std::size_t, Address& address) noexcept override {
        return made([&] { address = fresh() << 40; });
    }
    Status free_plain(Address) noexcept override { return made(); }

    Status begin_capture(StreamRef, CaptureMode mode) noexcept override {
        hear("mode", static_cast<std::size_t>(mode));
        return made();
    }
    Status end_capture(StreamRef, GraphRef& graph) noexcept override {
        return made([&] { graph.native = reinterpret_cast<void*>(fresh() << 4); });
    }
    Status update_graph(StreamRef, GraphRef& graph) noexcept override {
        return made([&] { graph.native = reinterpret_cast<void*>(fresh() << 4); });
    }
    Status launch(GraphRef, StreamRef) noexcept override { return made(); }
    Status close_graph(GraphRef) noexcept override { return made(); }

    Status follow_outside(StreamRef, EventRef) noexcept override { return made(); }

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
    Status take(std::size_t at_most, PageHandle& handle, std::size_t& got) noexcept override {
        return made([&] { handle = {fresh()}, got = at_most; });
    }
    Status ask_for_room(std::size_t, std::int64_t within) noexcept override {
        hear("within", static_cast<std::size_t>(within));
        return made();
    }
    Status create_shared(std::size_t, PageHandle& handle) noexcept override {
        return made([&] { handle = {fresh()}; });
    }
    Status export_pages(PageHandle, int& descriptor) noexcept override {
        return made([&] { descriptor = 7; });
    }
    Status import_pages(int descriptor, PageHandle& handle) noexcept override {
        hear("descriptor", static_cast<std::size_t>(descriptor));
        return made([&] { handle = {fresh()}; });
    }
    Status owns_event(EventRef, bool& yes) noexcept override {
        return made([&] { yes = true; });
    }
    void name_addresses(Address, std::size_t bytes, const char*) noexcept override { hear("name", bytes); }
    Status lane(Direction direction, StreamRef& stream) noexcept override {
        return made([&] { stream = reinterpret_cast<HostStream*>(direction == Direction::out ? 0x10 : 0x20); });
    }
    Status owns_stream(StreamRef, bool& yes) noexcept override {
        return made([&] { yes = true; });
    }
    Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override {
        hear("pool", pool.graphs() ? 1 : 0);
        return made([&] { bytes = 6_GiB; });
    }
    Status trim_pool(PoolRef pool, std::size_t) noexcept override {
        hear("pool", pool.graphs() ? 1 : 0);
        return made();
    }
    Status map_host(std::size_t, void*& pages) noexcept override {
        return made([&] { pages = reinterpret_cast<void*>(fresh() << 40); });
    }
    Status unmap_host(void*, std::size_t) noexcept override { return made(); }
    Status populate_host(void*, std::size_t) noexcept override { return made(); }
    Status pin_host(void*, std::size_t) noexcept override { return made(); }
    Status unpin_host(void*) noexcept override { return made(); }
    Status host_available(std::size_t& bytes) noexcept override {
        return made([&] { bytes = 5_GiB; });
    }
    Status open_file(const char* directory, FileRef& file) noexcept override {
        hear(directory, 0);
        return made([&] { file = {static_cast<int>(fresh()), true}; });
    }
    Status close_file(FileRef) noexcept override { return made(); }
    Status write_file(FileRef, const void*, std::size_t, std::size_t) noexcept override { return made(); }
    Status read_file(FileRef, void*, std::size_t, std::size_t) noexcept override { return made(); }
    Status allocate_file(FileRef, std::size_t, std::size_t) noexcept override { return made(); }
    Status punch_file(FileRef, std::size_t, std::size_t) noexcept override { return made(); }
    Status open_source(const char* path, bool direct, FileRef& file) noexcept override {
        hear(path, direct ? 1 : 0);
        return made([&] { file = {static_cast<int>(fresh()), direct}; });
    }
    Status file_facts(FileRef, FileFacts& facts) noexcept override {
        return made([&] { facts.bytes = 7_GiB; });
    }
    Status file_cached(FileRef, std::size_t, std::size_t, bool& yes) noexcept override {
        return made([&] { yes = true; });
    }

private:
    std::uint64_t fresh() noexcept { return state.next++; }

    void hear(const char* what, std::size_t value) {
        const std::lock_guard lock{state.mutex};
        state.heard += std::string{what} + ' ' + std::to_string(value) + '\n';
    }

    Status made() noexcept {
        ++state.made;
        return state.answer;
    }
    template <class Give>
    Status made(Give give) noexcept {
        const Status status = made();
        if (status.ok()) give();
        return status;
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
    std::string outputs; ///< outputs that no later call takes as input
};

/// How often `one_of_each` makes a call of one kind, and calls beyond one of each.
inline std::uint64_t times_of_each(Call call) { return call == Call::release ? 4 : call == Call::close_file ? 2 : 1; }
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
    gave(lane == reinterpret_cast<HostStream*>(0x20) ? 1 : 0);
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
