// Two GPUs: each tag's memory on each device is restored independently, the program's current device is unchanged,
// peers are granted access again, and graphs and workspaces work on the second device as on the first.
#include "backup/backup_support.hpp"
#include "gpu/gpu_support.hpp"

#ifdef MEMSAVER_TEST_CUDART
#include <cuda_runtime_api.h>
#endif

namespace gpu_two_devices_test {
using namespace gpu_test;

std::vector<std::uint32_t> words(std::size_t count, std::uint32_t value) {
    return std::vector<std::uint32_t>(count, value);
}

/// What most cases begin with: a program of the first of two devices.
struct OnTwoGpus {
    const Ledgered first{0};
    const Ledgered second{1};
    Program program{};
};

std::size_t used_on(const Watched& driver) {
    const DeviceMemory memory = test::memory_of(driver);
    return memory.total_bytes - memory.free_bytes;
}

TEST_CASE("bytes kept on two devices at once come back to each, whatever keeps them") {
    const CudaDriver devices[] = {CudaDriver{0}, CudaDriver{1}}; // keep their contexts
    constexpr std::size_t sizes[] = {6912, 3_MiB + 256, 20_MiB};
    constexpr std::size_t all_bytes = 6912 + 3_MiB + 256 + 20_MiB;
    for (const test::NamedPolicy& keeper : test::keepers()) {
        CAPTURE(keeper.name);
        const Ledgered first{0};
        const Ledgered second{1};
        MemorySaver saver{first.driver};
        struct Kept {
            const Watched& driver;
            void* block;
            std::size_t bytes;
        };
        const Buffer<std::uint32_t> only_there{saver.arena("other", Discard{}, second.driver), 16 << 20};
        std::vector<Kept> kept;
        for (const Ledgered* books : {&first, &second}) {
            const Arena arena = saver.arena("weights", keeper.policy, books->driver);
            for (const std::size_t bytes : sizes) kept.push_back({books->driver, arena.allocate(bytes), bytes});
        }
        for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
            CAPTURE(cycle);
            const auto seed = [&](std::size_t i) { return 100 * cycle + i; };
            for (std::size_t i = 0; i < kept.size(); ++i)
                test::write_pattern(kept[i].driver, kept[i].block, kept[i].bytes, seed(i));
            saver.invalidate("weights");
            const auto used = std::pair{used_on(first.driver), used_on(second.driver)};
            const Report paused = saver.pause("weights");
            REQUIRE(paused.tags.size() == 2);
            for (int device = 0; device < 2; ++device) {
                const TagReport& row = paused.tags[static_cast<std::size_t>(device)];
                CHECK(row.device == device);
                CHECK(row.saved_bytes == all_bytes);
                CHECK(row.released_bytes >= all_bytes);
            }
            CHECK(first.driver.handle_bytes() == 0);
            CHECK(second.driver.handle_bytes() == 64_MiB); // the other tag's
            CHECK(used.first - used_on(first.driver) >= all_bytes);
            CHECK(used.second - used_on(second.driver) >= all_bytes);
            CHECK(saver.resume("weights").restored_bytes == 2 * all_bytes);
            for (std::size_t i = 0; i < kept.size(); ++i)
                CHECK(test::has_pattern(kept[i].driver, kept[i].block, kept[i].bytes, seed(i)));
        }
    }
}

TEST_CASE_FIXTURE(OnTwoGpus, "the current device and context stay what they were") {
    CUcontext before = nullptr;
    must(program.native.ctx_get(&before), "cuCtxGetCurrent");
    const auto unchanged = [&] {
        CUcontext now = nullptr;
        must(program.native.ctx_get(&now), "cuCtxGetCurrent");
        bool same = now == before;
#ifdef MEMSAVER_TEST_CUDART
        int device = -1;
        same = same && cudaGetDevice(&device) == cudaSuccess && device == 0;
#endif
        return same;
    };
    REQUIRE(unchanged());
    MemorySaver saver{second.driver};
    const Arena arena = saver.arena("tag", Zero{});
    CHECK(unchanged());
    void* const block = arena.allocate(64_MiB);
    void* const more = saver.arena("tag", Zero{}, first.driver).allocate(64_MiB);
    CHECK(unchanged());
    saver.pause();
    CHECK(unchanged());
    saver.resume();
    CHECK(unchanged());
    std::ignore = saver.usage();
    saver.deallocate(block);
    saver.deallocate(more);
    saver.trim();
    CHECK(unchanged());
    saver.close();
    CHECK(unchanged());
}

TEST_CASE_FIXTURE(OnTwoGpus, "freed with a stream of the other device") { // uses its memory from a stream of its own
    MemorySaver saver{second.driver};
    const Arena arena = saver.arena("tag");
    for (int i = 0; i < 10; ++i) arena.deallocate(arena.allocate(2_MiB), program.stream);
    saver.pause("tag", {.order = after(program.stream)});
    saver.resume("tag");
}

TEST_CASE_FIXTURE(OnTwoGpus, "a pause waits for both devices") {
    Program neighbour{1};
    MemorySaver saver{first.driver};
    Buffer<std::uint32_t> here{saver.arena("tag"), 1 << 20};
    Buffer<std::uint32_t> there{saver.arena("tag", Discard{}, second.driver), 1 << 20};
    neighbour.shut_gate();
    neighbour.wait_and_store(neighbour.stream, there.data(), 1);
    CHECK_THROWS_AS(saver.pause("tag", {.timeout = std::chrono::milliseconds{5}}), NotIdle);
    CHECK(first.driver.calls(Call::unmap) + second.driver.calls(Call::unmap) == 0); // all or nothing
    neighbour.open_gate();
    neighbour.synchronize();
    test::pause_and_resume(saver, "tag");
}

TEST_CASE("a peer can use the pages, before a pause and after") {
    if (!CudaDriver::available(1)) return;
    const Watched driver{CudaDriver{1, {.peers = {0}}}};
    {
        Program program; // of device 0
        MemorySaver saver{driver};
        Buffer<std::uint32_t> data{saver.arena("shared", Zero{}), 32 << 20};
        for (int cycle = 0; cycle < 3; ++cycle) {
            CAPTURE(cycle);
            test::pause_and_resume(saver);
            program.add_one(program.stream, data.data(), 32 << 20); // device 0's kernel, device 1's memory
            program.synchronize();
            CHECK(program.read(data.data(), data.size()) == words(data.size(), 1));
        }
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    CHECK(driver.violations().empty());
}

TEST_CASE_FIXTURE(OnTwoGpus, "a graph on the second device is paused there, and replays") {
    constexpr std::uint32_t count = 1 << 19;
    Program neighbour{1};
    MemorySaver saver{first.driver};
    void* block = nullptr;
    {
        const CaptureOptions there{.policy = Zero{}, .device = second.driver};
        const Graph graph = capture(saver, "graph", neighbour.stream, there, [&] {
            block = saver.allocate(count * sizeof(std::uint32_t));
            neighbour.add_one(neighbour.stream, block, count);
        });
        CHECK(graph.device() == 1);
        CHECK(first.driver.handle_bytes() == 0);
        CHECK(second.driver.handle_bytes() != 0);
        for (int cycle = 0; cycle < 3; ++cycle) {
            CAPTURE(cycle);
            saver.pause("graph");
            CHECK(second.driver.handle_bytes() == 0);
            CHECK_THROWS_AS(graph.launch(neighbour.stream), Misuse);
            saver.resume("graph"); // zeros
            graph.launch(neighbour.stream);
            neighbour.synchronize();
            CHECK(neighbour.read(block, count) == words(count, 1));
        }
        // The stream belongs to another device.
        CHECK_THROWS_AS(std::ignore = capture(saver, "graph", program.stream, there, [] {}), Misuse);
    }
    saver.deallocate(block);
}

TEST_CASE_FIXTURE(OnTwoGpus, "a pool of workspaces on the second device: grows, is zeroed, captured and paused there") {
    constexpr std::uint32_t count = 1 << 20;
    constexpr std::size_t bytes = count * sizeof(std::uint32_t);
    Program neighbour{1};
    MemorySaver saver{first.driver};
    {
        WorkspacePool pool{saver.arena("workspace", Discard{}, second.driver), {.cap = 64_MiB}};
        const WorkspaceOptions zeroed{.reuse = Reuse::zeroed, .stream = neighbour.stream};
        void* const workspace = pool.get("a", bytes, zeroed);
        CHECK_THROWS_AS(std::ignore = pool.get("a", bytes, {.stream = program.stream}), Misuse);
        CHECK(pool.get("a", 32_MiB) == workspace);
        CHECK(pool.get("b", bytes, {.stream = neighbour.stream}) == workspace);
        CHECK(first.driver.handle_bytes() == 0);
        CHECK(second.driver.handle_bytes() == 32_MiB);
        neighbour.add_one(neighbour.stream, workspace, count);
        neighbour.synchronize();
        CHECK(neighbour.read(workspace, count) == words(count, 1));

        const CaptureOptions there{.policy = Zero{}, .device = second.driver};
        const Graph graph = capture(saver, "graph", neighbour.stream, there,
                                    [&] { neighbour.add_one(neighbour.stream, pool.get("a", bytes, zeroed), count); });
        for (int cycle = 0; cycle < 2; ++cycle) {
            CAPTURE(cycle);
            saver.pause();
            CHECK(second.driver.handle_bytes() == 0);
            CHECK(pool.get("a", bytes) == workspace);
            saver.resume();
            for (int replay = 0; replay < 2; ++replay) { // each replay begins with zeros
                graph.launch(neighbour.stream);
                neighbour.synchronize();
                CHECK(neighbour.read(workspace, count) == words(count, 1));
            }
        }
    }
}
} // namespace gpu_two_devices_test
