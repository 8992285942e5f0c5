// Memory retained by CUDA's own allocators is released after a pause: memory of graphs with allocations, and
// stream-ordered pools.
#include "gpu/gpu_support.hpp"

#include <algorithm>
#include <limits>

namespace gpu_pools_test {
using namespace gpu_test;

constexpr std::size_t bytes = 64_MiB;

/// The calls of a program that allocates in stream order.
struct Ordered {
    explicit Ordered(Program& program) : library{program.native.library} {}
    CudaLibrary& library;

    CUresult (*allocate)(CUdeviceptr*, std::size_t, CUstream) = library.entry("cuMemAllocAsync", 11020);
    CUresult (*free)(CUdeviceptr, CUstream) = library.entry("cuMemFreeAsync", 11020);
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) = library.entry("cuMemcpyDtoDAsync", 3020);
    CUresult (*default_pool)(CUmemoryPool*, CUdevice) = library.entry("cuDeviceGetDefaultMemPool", 11020);
    CUresult (*get)(CUmemoryPool, CUmemPool_attribute, void*) = library.entry("cuMemPoolGetAttribute", 11020);
    CUresult (*set)(CUmemoryPool, CUmemPool_attribute, void*) = library.entry("cuMemPoolSetAttribute", 11020);
};

std::size_t held(const Watched& driver, const PoolRef& pool) {
    std::size_t all = 0;
    REQUIRE(driver.pool_memory(pool, all).ok());
    return all;
}

std::size_t released_by_pools(const Report& report) {
    std::size_t sum = 0;
    for (const TagReport& row : report.tags) sum += row.tag == "CUDA pools" ? row.released_bytes : 0;
    return sum;
}

TEST_CASE_FIXTURE(OnGpu,
                  "the memory that graphs keep between launches is released, and the next launch takes it again") {
    const Ordered calls{program};
    MemorySaver saver{books.driver};
    Buffer<std::uint32_t> result{saver.arena("result"), 1024};
    Buffer<std::uint32_t> cache{saver.arena("cache"), 4 << 20};
    const Hook trim = saver.after_pause(trim_cuda_pools);
    const auto graphs = [&] { return held(books.driver, PoolRef::of_graphs()); };
    (void)trim_cuda_pools.trim(books.driver); // of earlier tests
    const std::size_t before = graphs();

    must(program.native.begin_capture(program.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    CUdeviceptr scratch = 0;
    must(calls.allocate(&scratch, bytes, program.stream), "cuMemAllocAsync");
    must(program.native.fill(scratch, 0x5A, bytes, program.stream), "cuMemsetD8Async");
    must(calls.copy(reinterpret_cast<CUdeviceptr>(result.data()), scratch + bytes - result.size_bytes(),
                    result.size_bytes(), program.stream),
         "cuMemcpyDtoDAsync");
    must(calls.free(scratch, program.stream), "cuMemFreeAsync");
    CUgraph graph = nullptr;
    must(program.native.end_capture(program.stream, &graph), "cuStreamEndCapture");
    CUgraphExec ready = nullptr;
    must(program.native.graph_instantiate(&ready, graph, 0), "cuGraphInstantiate");

    for (int cycle = 0; cycle < 2; ++cycle) {
        CAPTURE(cycle);
        program.fill(result.data(), 0, result.size_bytes());
        must(program.native.graph_launch(ready, program.stream), "cuGraphLaunch");
        must(program.native.stream_synchronize(program.stream), "cuStreamSynchronize");
        CHECK(program.read(result.data(), 1024) == std::vector<std::uint32_t>(1024, 0x5A5A5A5A));
        CHECK(graphs() >= before + bytes);
        const Report paused = saver.pause("cache");
        CHECK(released_by_pools(paused) >= bytes);
        CHECK(graphs() < before + bytes);
        saver.resume("cache");
    }
    must(program.native.graph_exec_destroy(ready), "cuGraphExecDestroy");
    must(program.native.graph_destroy(graph), "cuGraphDestroy");
    saver.pause("cache");
    CHECK(graphs() <= before);
    saver.resume("cache");
}

TEST_CASE_FIXTURE(OnGpu, "memory that a stream-ordered pool keeps is released, and memory in use stays") {
    const Ordered calls{program};
    MemorySaver saver{books.driver};
    Buffer<std::uint32_t> cache{saver.arena("cache"), 4 << 20};
    const Hook trim = saver.after_pause(trim_cuda_pools);
    CUmemoryPool pool = nullptr;
    must(calls.default_pool(&pool, 0), "cuDeviceGetDefaultMemPool");
    cuuint64_t threshold = 0;
    must(calls.get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "cuMemPoolGetAttribute");
    cuuint64_t everything = std::numeric_limits<cuuint64_t>::max(); // as frameworks set it
    must(calls.set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything), "cuMemPoolSetAttribute");

    CUdeviceptr used = 0;
    CUdeviceptr freed = 0;
    must(calls.allocate(&used, bytes, program.stream), "cuMemAllocAsync");
    must(calls.allocate(&freed, bytes, program.stream), "cuMemAllocAsync");
    must(program.native.fill(used, 0x11, bytes, program.stream), "cuMemsetD8Async");
    must(calls.free(freed, program.stream), "cuMemFreeAsync");
    must(program.native.stream_synchronize(program.stream), "cuStreamSynchronize");
    CHECK(held(books.driver, {}) >= 2 * bytes);
    const Report paused = saver.pause("cache");
    CHECK(released_by_pools(paused) >= bytes);
    CHECK(held(books.driver, {}) >= bytes);
    CHECK(held(books.driver, {}) < 2 * bytes);
    CHECK(program.read(reinterpret_cast<const void*>(used), 4) == std::vector<std::uint32_t>(4, 0x11111111));
    must(calls.free(used, program.stream), "cuMemFreeAsync");
    must(program.native.stream_synchronize(program.stream), "cuStreamSynchronize");
    const Report resumed = saver.resume("cache"); // and after a resume
    CHECK(released_by_pools(resumed) >= bytes);
    CHECK(held(books.driver, {}) < bytes);

    must(calls.set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "cuMemPoolSetAttribute");
}
} // namespace gpu_pools_test
