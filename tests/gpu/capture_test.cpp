// Captures that a program makes with calls and kernels of its own. Those made through the driver, and each operation
// inside them, are in saver/capture_test.cpp, which also runs on a GPU.
#include "gpu/gpu_support.hpp"

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

TEST_CASE_FIXTURE(OnGpu, "memory is allocated, freed, saved, paused and resumed while a program captures kernels") {
    for (const Mode& mode : modes) {
        CAPTURE(mode.name);
        MemorySaver saver{books.driver};
        const Arena kept = saver.arena("kept", HostBackup{});
        (void)kept.allocate(8_MiB);
        const Buffer<std::uint32_t> data{saver.arena("data"), 1000};
        program.fill(data.data(), 0, data.size_bytes());
        {
            Recording recording{program, mode.mode, data.data(), 1000};
            kept.deallocate(kept.allocate(40_MiB), program.other_stream);
            saver.pause("kept", {.order = after(program.other_stream)});
            saver.resume("kept");
            CHECK_THROWS_AS(saver.pause("data", {.order = after(program.stream)}), Misuse);
            CHECK(recording.whole());
            CHECK(recording.end());
            recording.replay();
            recording.replay();
        }
        CHECK(program.read(data.data(), 1000) == std::vector<std::uint32_t>(1000, 4));
    }
}

TEST_CASE_FIXTURE(OnGpu, "a graph of kernels replays after its memory was paused and resumed") {
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
}
} // namespace gpu_capture_test
