// Stream captures of a program, in each mode, while memsaver allocates, frees, pauses and resumes: none of them
// invalidates the capture. Graphs replay after their memory was paused and resumed.
#include "backup/backup_support.hpp"
#include "gpu/gpu_support.hpp"

#include <future>

namespace gpu_capture_test {
using namespace gpu_test;

/// A capture by the program on its first stream, with one kernel in it.
struct Recording {
    Recording(Program& program, CUstreamCaptureMode mode, void* data, std::uint32_t count)
        : program_{program}, data_{data}, count_{count} {
        must(program_.native.begin_capture(program_.stream, mode), "cuStreamBeginCapture");
        program_.add_one(program_.stream, data_, count_);
    }
    ~Recording() {
        CUgraph graph = nullptr;
        if (open_ && program_.native.end_capture(program_.stream, &graph) == CUDA_SUCCESS) {
            (void)program_.native.graph_destroy(graph);
        }
        if (ready_ != nullptr) (void)program_.native.graph_exec_destroy(ready_);
    }

    [[nodiscard]] bool whole() const {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        must(program_.native.stream_capturing(program_.stream, &status), "cuStreamIsCapturing");
        return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    }
    /// Ends the capture and returns whether it is valid. The graph contains the kernel twice.
    bool end() {
        program_.add_one(program_.stream, data_, count_);
        open_ = false;
        CUgraph graph = nullptr;
        if (program_.native.end_capture(program_.stream, &graph) != CUDA_SUCCESS) return false;
        must(program_.native.graph_instantiate(&ready_, graph, 0), "cuGraphInstantiate");
        must(program_.native.graph_destroy(graph), "cuGraphDestroy");
        return true;
    }
    void replay() {
        must(program_.native.graph_launch(ready_, program_.stream), "cuGraphLaunch");
        must(program_.native.stream_synchronize(program_.stream), "cuStreamSynchronize");
    }

private:
    Program& program_;
    void* data_;
    std::uint32_t count_;
    bool open_ = true;
    CUgraphExec ready_ = nullptr;
};

struct Mode {
    const char* name;
    CUstreamCaptureMode mode;
};
constexpr Mode modes[] = {{"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
                          {"thread local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
                          {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};

/// Runs `act` on this thread or on a new one, which has no current context.
void on_thread(bool other, const std::function<void()>& act) {
    if (other) {
        std::async(std::launch::async, act).get();
    } else {
        act();
    }
}

using Act = std::function<void(Program&, MemorySaver<Watched>&, const Watched&)>;

/// Runs `act` while a capture is open, for every mode, on the capturing thread and on another one. `before` and
/// `afterwards` run outside the capture.
void around_captures(const Act& act, const Act& before = {}, const Act& afterwards = {}) {
    for (const Mode& mode : modes) {
        for (const bool other : {false, true}) {
            CAPTURE(mode.name);
            CAPTURE(other);
            Program program;
            const Ledgered books;
            MemorySaver saver{books.driver};
            const Buffer<std::uint32_t> data{saver.arena("data"), 1000};
            program.fill(data.data(), 0, data.size_bytes());
            if (before) before(program, saver, books.driver);
            {
                Recording recording{program, mode.mode, data.data(), 1000};
                on_thread(other, [&] { act(program, saver, books.driver); });
                CHECK(recording.whole());
                CHECK(recording.end());
                recording.replay();
                recording.replay();
            }
            CHECK(program.read(data.data(), 1000) == std::vector<std::uint32_t>(1000, 4));
            if (afterwards) afterwards(program, saver, books.driver);
            saver.close();
        }
    }
}

TEST_CASE("allocating inside a capture, growth included") {
    around_captures([](Program&, MemorySaver<Watched>& saver, const Watched& driver) {
        const auto before = driver.calls(Call::create);
        const Arena fresh = saver.arena("fresh"); // reserves addresses
        for (const std::size_t bytes : {256_KiB, 3_MiB, 40_MiB, 300_MiB}) (void)fresh.allocate(bytes);
        for (int i = 0; i < 100; ++i) (void)fresh.allocate(4_KiB);
        CHECK(driver.calls(Call::create) > before);
    });
}

TEST_CASE("freeing inside a capture: plain, and with a stream that is not captured") {
    around_captures([](Program& program, MemorySaver<Watched>& saver, const Watched&) {
        const Arena arena = saver.arena("freed");
        for (int round = 0; round < 3; ++round) {
            for (const std::size_t bytes : {4_KiB, 3_MiB}) {
                arena.deallocate(arena.allocate(bytes));
                arena.deallocate(arena.allocate(bytes), program.other_stream);
                arena.deallocate(arena.allocate(bytes), already_idle);
            }
        }
    });
}

TEST_CASE("freeing with the stream that is being captured keeps the block from others: replays write there") {
    around_captures([](Program& program, MemorySaver<Watched>& saver, const Watched&) {
        const Arena arena = saver.arena("kept");
        void* const block = arena.allocate(2_MiB);
        arena.deallocate(block, program.stream);
        std::set<void*> later;
        for (int i = 0; i < 20; ++i) later.insert(arena.allocate(2_MiB));
        CHECK(later.count(block) == 0);
    });
}

TEST_CASE("an allocation that has to wait for the device leaves captures whole") {
    around_captures([](Program&, MemorySaver<Watched>& saver, const Watched& driver) {
        const Arena arena = saver.arena("full", Discard{}, ArenaOptions{.capacity = 4_MiB});
        void* const a = arena.allocate(2_MiB);
        (void)arena.allocate(2_MiB);
        arena.deallocate(a);
        const auto before = driver.calls(Call::drain);
        CHECK(arena.allocate(2_MiB) == a);
        CHECK(driver.calls(Call::drain) == before + 1);
    });
}

TEST_CASE("small blocks freed over and over, so that fences are needed, leave captures whole") {
    around_captures([](Program&, MemorySaver<Watched>& saver, const Watched& driver) {
        const Arena arena = saver.arena("churn");
        const auto before = driver.calls(Call::drain);
        for (int i = 0; i < 20000; ++i) arena.deallocate(arena.allocate(16_KiB)); // more than 128 MiB
        CHECK(driver.calls(Call::drain) > before);
    });
}

TEST_CASE("pausing and resuming other tags after named streams, and trimming, leave captures whole") {
    around_captures([](Program& program, MemorySaver<Watched>& saver, const Watched&) {
        const Arena zero = saver.arena("zero", Zero{});
        const Arena loose = saver.arena("loose");
        void* const block = zero.allocate(8_MiB);
        void* const gone = loose.allocate(8_MiB);
        loose.deallocate(gone, already_idle);
        CHECK(saver.pause("zero", {.order = after(program.other_stream)}).released_bytes != 0);
        CHECK(saver.resume("zero").restored_bytes != 0); // a fill, and a wait for it
        CHECK(saver.trim("loose", {.order = already_idle}).released_bytes != 0);
        saver.pause("zero", {.order = already_idle});
        zero.deallocate(block);
        saver.resume("zero");
    });
}

constexpr std::size_t kept_bytes = 3_MiB + 6912;

/// Prepares, pauses and resumes one tag for each of these policies during captures.
void keep_around_captures(const std::vector<test::NamedPolicy>& policies) {
    std::vector<void*> blocks;
    const Act prepare_pause_resume = [&](Program& program, MemorySaver<Watched>& saver, const Watched& driver) {
        for (const auto& keeper : policies) {
            CAPTURE(keeper.name);
            saver.prepare(keeper.name);
            CHECK(driver.pinned_bytes() != 0);
            CHECK(saver.pause(keeper.name, {.order = after(program.other_stream)}).saved_bytes == kept_bytes);
            CHECK(saver.resume(keeper.name).restored_bytes == kept_bytes);
        }
    };
    const Act write = [&](Program&, MemorySaver<Watched>& saver, const Watched& driver) {
        blocks.clear();
        for (const auto& [name, policy] : policies) {
            blocks.push_back(saver.arena(name, policy).allocate(kept_bytes));
            test::write_pattern(driver, blocks.back(), kept_bytes, blocks.size());
        }
    };
    const Act compare = [&](Program&, MemorySaver<Watched>&, const Watched& driver) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            CAPTURE(policies[i].name);
            CHECK(test::has_pattern(driver, blocks[i], kept_bytes, i + 1));
        }
    };
    around_captures(prepare_pause_resume, write, compare);
}

/// Returns the policies that free their host memory at every resume, or the others.
std::vector<test::NamedPolicy> keepers_that_give_back(bool yes) {
    auto policies = test::keepers();
    std::erase_if(policies, [&](const auto& each) { return test::contains(each.name, "given back") != yes; });
    return policies;
}

TEST_CASE("preparing, saving and restoring leave captures whole: pinning, copies, files, and waits for them") {
    const auto policies = keepers_that_give_back(false);
    REQUIRE(policies.size() >= 6);
    keep_around_captures(policies);
}

TEST_CASE("freeing host memory leaves captures whole: unpinning") {
    const auto policies = keepers_that_give_back(true);
    REQUIRE(policies.size() >= 3);
    keep_around_captures(policies);
}

TEST_CASE("a pause that is to wait for a stream under capture is misuse, and harms neither") {
    around_captures([](Program& program, MemorySaver<Watched>& saver, const Watched&) {
        CHECK_THROWS_AS(saver.pause("data", {.order = after(program.stream)}), Misuse);
    });
}

TEST_CASE_FIXTURE(OnGpu, "opening and closing savers meanwhile, on another thread") {
    MemorySaver saver{books.driver};
    const Buffer<std::uint32_t> data{saver.arena("data"), 1000};
    program.fill(data.data(), 0, data.size_bytes());
    Recording recording{program, CU_STREAM_CAPTURE_MODE_GLOBAL, data.data(), 1000};
    on_thread(true, [&] {
        MemorySaver second{books.driver};
        const Buffer<int> buffer{second.arena("tag"), 1 << 20};
        std::ignore = second.usage();
        second.close();
    });
    CHECK(recording.end());
    recording.replay();
    CHECK(program.read(data.data(), 1000) == std::vector<std::uint32_t>(1000, 2));
}

TEST_CASE_FIXTURE(OnGpu, "a graph replays after its memory was paused and resumed") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("graph", Zero{});
    constexpr std::uint32_t count = 3 << 20;
    const Buffer<std::uint32_t> first{arena, count};
    const Buffer<std::uint32_t> second{arena, count};
    {
        Recording recording{program, CU_STREAM_CAPTURE_MODE_GLOBAL, first.data(), count};
        program.add_one(program.stream, second.data(), count);
        must(program.native.fill(reinterpret_cast<CUdeviceptr>(second.data()), 7, 4, program.stream),
             "cuMemsetD8Async");
        REQUIRE(recording.end());
        program.fill(first.data(), 0, first.size_bytes());
        program.fill(second.data(), 0, second.size_bytes());
        recording.replay();
        CHECK(program.read(first.data(), count) == std::vector<std::uint32_t>(count, 2));
        for (int cycle = 0; cycle < 3; ++cycle) {
            CAPTURE(cycle);
            saver.pause("graph");
            saver.resume("graph"); // zeros
            recording.replay();
            CHECK(program.read(first.data(), count) == std::vector<std::uint32_t>(count, 2));
            auto wanted = std::vector<std::uint32_t>(count, 1);
            wanted[0] = 0x07070707;
            CHECK(program.read(second.data(), count) == wanted);
        }
    }
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "the driver's own captures: a graph made through CudaDriver replays after a pause") {
    const Watched& driver = books.driver;
    MemorySaver saver{driver};
    const Buffer<std::uint32_t> data{saver.arena("graph", Zero{}), 1 << 20};
    GraphRef graph;
    for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed}) {
        REQUIRE(driver.begin_capture(program.stream, mode).ok());
        program.add_one(program.stream, data.data(), 1 << 20);
        (void)saver.arena("meanwhile").allocate(64_MiB);
        REQUIRE(driver.end_capture(program.stream, graph).ok());
        test::pause_and_resume(saver);
        REQUIRE(driver.launch(graph, program.stream).ok());
        CHECK(program.read(data.data(), 1 << 20) == std::vector<std::uint32_t>(1 << 20, 1));
        REQUIRE(driver.close_graph(graph).ok());
    }
    saver.close();
}
} // namespace gpu_capture_test
