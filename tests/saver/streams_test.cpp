// A program that runs ahead of its device allocates and frees with a stream: which blocks it gets again.
#include "support/each_of.hpp"

#include <latch>

namespace saver_streams_test {
using namespace test;
using Machine = MachineDriver;

TEST_CASE("streams: blocks that any thread freed with a stream serve that stream again before the arena grows") {
    const std::size_t bytes = each_of({std::size_t{64_KiB}, std::size_t{3_MiB}});
    const Machine driver{HostDriver{1_GiB}};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("a");
    const HeldStream busy{driver};
    const HeldStream other{driver};
    constexpr std::size_t threads = 8; // each has its own shard, unless ids collide
    const auto take = [&](std::size_t count) {
        std::vector<void*> blocks(count);
        for (void*& block : blocks) block = arena.allocate(bytes, busy.get());
        return blocks;
    };
    const auto give = [&](const std::vector<void*>& blocks) {
        for (void* const block : blocks) arena.deallocate(block, busy.get());
    };
    std::latch all{threads};
    Threads{threads,
            [&](std::size_t) {
                const std::vector<void*> blocks = take(4_MiB / bytes);
                all.arrive_and_wait();
                give(blocks);
            }}
        .join();
    const std::size_t mapped = arena.usage().mapped_bytes;
    const std::vector<void*> taken = take(threads * (4_MiB / bytes));
    CHECK(arena.usage().mapped_bytes == mapped);
    give(taken);
    void* const elsewhere = arena.allocate(bytes, other.get()); // its work may run before the busy stream's
    CHECK(std::count(taken.begin(), taken.end(), elsewhere) == 0);
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "streams: a block serves its stream again for its size, or a quarter less, if it is aligned") {
    const Arena arena = saver.arena("a");
    const HeldStream busy{machine.driver};
    (void)arena.allocate(4_KiB);
    void* const block = arena.allocate(1_MiB);
    arena.deallocate(block, busy.get());
    CHECK(arena.allocate(1_MiB + 256, busy.get()) != block);
    CHECK(arena.allocate(1_MiB, busy.get(), 2_MiB) != block);
    CHECK(arena.allocate(838'400, busy.get()) != block);
    CHECK(arena.allocate(838'912, busy.get()) == block);
}

TEST_CASE("streams: a graph's block is not one that eager work of the captured stream may still touch") {
    const HostDriver driver{64_MiB};
    const OwnStream stream{driver};
    const OwnStream other{driver};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("graph", HostBackup{});
    void* const eager = arena.allocate(1_MiB, stream);
    REQUIRE(driver.hold(stream).ok());
    REQUIRE(driver.fill(address_of(eager), 1, 1_MiB, stream).ok());
    arena.deallocate(eager, stream);
    void* recorded = nullptr;
    const Graph graph = capture(saver, "graph", stream, [&] {
        recorded = saver.allocate(1_MiB, stream);
        REQUIRE(driver.fill(address_of(recorded), 2, 1_MiB, stream).ok());
    });
    CHECK(recorded != eager);
    graph.launch(other); // may run before the other stream's work
    REQUIRE(driver.let_go(stream).ok());
    REQUIRE(driver.drain().ok());
    CHECK(all_are(driver, recorded, 1_MiB, 2));
}

/// CUDA's per-thread default stream: one handle that is a different stream in each thread.
struct PerThread : DeviceAround {
    using DeviceAround::DeviceAround;
    static StreamRef of_this_thread(StreamRef stream) { return stream.per_thread() ? mine : stream; }
    Status record(EventRef event, StreamRef stream) noexcept override {
        return DeviceAround::record(event, of_this_thread(stream));
    }
    Status open_event(StreamRef stream, EventRef& event) noexcept override {
        return DeviceAround::open_event(of_this_thread(stream), event);
    }
    Status capturing(StreamRef stream, bool& yes) noexcept override {
        return DeviceAround::capturing(of_this_thread(stream), yes);
    }
    Status owns_stream(StreamRef stream, bool& yes) noexcept override {
        return DeviceAround::owns_stream(of_this_thread(stream), yes);
    }
    Status begin_capture(StreamRef stream, CaptureMode mode) noexcept override {
        return DeviceAround::begin_capture(of_this_thread(stream), mode);
    }
    Status end_capture(StreamRef stream, GraphRef& graph) noexcept override {
        return DeviceAround::end_capture(of_this_thread(stream), graph);
    }
    static inline thread_local StreamRef mine{};
};
const StreamRef per_thread = StreamRef::from_native(reinterpret_cast<void*>(std::uintptr_t{2}));

TEST_CASE("streams: blocks freed in a capture of a thread's default stream stay with the graph") {
    const HostWith<PerThread> driver{64_MiB};
    const OwnStream stream{driver};
    const OwnStream others{driver};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("graph");
    PerThread::mine = stream;
    void* freed = nullptr;
    {
        const Graph graph = capture(saver, "graph", per_thread, {.mode = CaptureMode::relaxed}, [&] {
            freed = saver.allocate(1_MiB, per_thread);
            std::thread{[&] { // it frees outside of the capture
                PerThread::mine = others;
                arena.deallocate(arena.allocate(2_MiB), per_thread);
            }}
                .join();
            saver.deallocate(freed, per_thread);
        });
        (void)saver.trim();
        CHECK(arena.usage().mapped_bytes == 2_MiB);
        CHECK(arena.allocate(1_MiB) != freed);
    }
    (void)saver.trim();
    PerThread::mine = {};
}

TEST_CASE("streams: a block freed with a thread's default stream is not reused by another thread before that passed") {
    const HostWith<PerThread> driver{64_MiB};
    const OwnStream first{driver};
    const OwnStream second{driver};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("a");
    void* freed = nullptr;
    std::thread{[&] {
        PerThread::mine = first;
        freed = arena.allocate(20_MiB, per_thread);
        CHECK(driver.host().hold(first).ok());
        CHECK(driver.fill(address_of(freed), 1, 20_MiB, first).ok());
        arena.deallocate(freed, per_thread);
    }}.join();
    std::thread{[&] {
        PerThread::mine = second;
        CHECK(arena.allocate(20_MiB, per_thread) != freed);
    }}.join();
    CHECK(driver.host().let_go(first).ok());
    CHECK(driver.drain().ok());
}

/// Behaves like cuStreamIsCapturing for the default stream while a stream that waits for it is being captured.
struct Implicit : DeviceAround {
    using DeviceAround::DeviceAround;
    Status capturing(StreamRef stream, bool& yes) noexcept override {
        const Status status = DeviceAround::capturing(stream, yes);
        yes = yes || (stream == StreamRef{} && implicit);
        return status;
    }
    bool implicit = false;
};

TEST_CASE("streams: blocks freed with the default stream while others capture are free after the next fence") {
    const HostWith<Implicit> driver{1_GiB};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("a", ArenaOptions{.capacity = 256_MiB});
    for (int i = 0; i < 20; ++i) { // more than the capacity in total
        void* const block = arena.allocate(32_MiB);
        driver.changed().implicit = true;
        arena.deallocate(block, StreamRef{});
        driver.changed().implicit = false;
    }
    (void)saver.trim();
    CHECK(arena.usage().mapped_bytes == 0);
    CHECK(saver.owns(arena.allocate(200_MiB)));
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "streams: a block that is freed during a resume which fails is gone at once, as it is paused again") {
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1});
    const Buffer<char> kept{arena, 4_MiB};
    void* const freed = arena.allocate(4_MiB);
    saver.pause("tag");
    const HeldStream stream{machine.driver};
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::create) arena.deallocate(freed, stream.get());
    });
    machine.driver.fail({.call = Call::create, .kind = StatusKind::out_of_memory});
    CHECK_THROWS_AS(saver.resume("tag"), Error); // and does not wait for the stream
    machine.driver.on_call({});
    CHECK(row_of(saver, "tag").backed_up_bytes == 4_MiB);
}
} // namespace saver_streams_test
