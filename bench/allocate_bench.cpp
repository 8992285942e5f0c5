// The cost of an allocation and its deallocation, alongside other threads and other live blocks.
//
// A sample is the mean of 16 pairs; each block is freed before the next one is allocated. The time of a benchmark is
// the median sample, in nanoseconds per pair, over all threads. The other blocks, of 4 KiB each, were allocated by the
// same threads.
#include "bench.hpp"

#if MEMSAVER_BENCH_CUDART
#include <cuda_runtime_api.h>
#endif

#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

namespace {

using namespace bench;

constexpr int pairs_in_sample = 16;

struct Shape {
    int threads;
    std::size_t bytes;
    std::size_t live; ///< other live blocks
    int samples;      ///< per thread
};

/// Runs `start(thread)` on every thread, which returns a function that performs one pair; then samples that function on
/// all threads concurrently.
template <class Start>
void sample(benchmark::State& state, const Shape& shape, Start&& start) {
    std::vector<std::vector<double>> samples(static_cast<std::size_t>(shape.threads));
    std::atomic<int> ready{0};
    std::atomic<bool> failed{false};
    const auto run = [&](int thread) {
        bool counted = false;
        try {
            auto pair = start(thread);
            auto& mine = samples[static_cast<std::size_t>(thread)];
            mine.reserve(static_cast<std::size_t>(shape.samples));
            for (int i = 0; i < 8 * pairs_in_sample; ++i) pair();
            ++ready;
            counted = true;
            while (ready.load() < shape.threads) std::this_thread::yield();
            for (int i = 0; i < shape.samples; ++i) {
                const auto begin = Clock::now();
                for (int j = 0; j < pairs_in_sample; ++j) pair();
                mine.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
                               pairs_in_sample);
            }
        } catch (const std::exception&) {
            failed = true;
            if (!counted) ++ready;
        }
    };
    for (auto _ : state) {
        ready = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < shape.threads; ++i) threads.emplace_back(run, i);
        for (std::thread& thread : threads) thread.join();
        std::vector<double> all;
        for (const auto& mine : samples) all.insert(all.end(), mine.begin(), mine.end());
        state.SetIterationTime(median(all) * 1e-9);
        state.counters["median_ns"] = median(all);
        state.counters["p99_ns"] = quantile(all, 0.99);
    }
    state.counters["threads"] = shape.threads;
    state.counters["bytes"] = static_cast<double>(shape.bytes);
    state.counters["live"] = static_cast<double>(shape.live);
    if (failed) state.SkipWithError("a thread failed");
}

enum class Free { plain, stream, idle, ordered }; // ordered: the allocation is in stream order, too

template <Driver D>
void ours(benchmark::State& state, const D& driver, const Shape& shape, Free how, bool enabled = true) {
    MemorySaver<D> saver{driver, {.enabled = enabled}};
    const Arena arena = saver.arena("blocks");
    const std::size_t others = shape.live / static_cast<std::size_t>(shape.threads);
    std::vector<StreamRef> streams(static_cast<std::size_t>(shape.threads));
    for (StreamRef& stream : streams) check(driver.open_stream(stream), "open a stream");
    sample(state, shape, [&](int thread) {
        for (std::size_t i = 0; i < others; ++i) (void)arena.allocate(4_KiB); // freed by the saver's end
        const StreamRef stream = streams[static_cast<std::size_t>(thread)];
        return [&arena, &shape, how, stream] {
            void* block = how == Free::ordered ? arena.allocate(shape.bytes, stream) : arena.allocate(shape.bytes);
            switch (how) {
            case Free::plain: arena.deallocate(block); break;
            case Free::ordered:
            case Free::stream: arena.deallocate(block, stream); break;
            case Free::idle: arena.deallocate(block, already_idle); break;
            }
        };
    });
    saver.close();
    for (const StreamRef stream : streams) (void)driver.close_stream(stream);
}

#if MEMSAVER_BENCH_CUDART
void must(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error{cudaGetErrorString(error)};
}

void runtime(benchmark::State& state, const Shape& shape, bool ordered) {
    std::vector<void*> others(shape.live);
    std::atomic<std::size_t> next{0};
    std::vector<cudaStream_t> streams(static_cast<std::size_t>(shape.threads));
    for (cudaStream_t& stream : streams) must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    // Configured as the CUDA manual advises programs that allocate often: memory stays in the pool.
    cudaMemPool_t pool = nullptr;
    must(cudaDeviceGetDefaultMemPool(&pool, 0));
    std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    sample(state, shape, [&](int thread) {
        const cudaStream_t stream = streams[static_cast<std::size_t>(thread)];
        const std::size_t mine = shape.live / static_cast<std::size_t>(shape.threads);
        for (std::size_t i = 0; i < mine; ++i) {
            void** other = &others[next.fetch_add(1)];
            must(ordered ? cudaMallocAsync(other, 4_KiB, stream) : cudaMalloc(other, 4_KiB));
        }
        return [&shape, stream, ordered] {
            void* block = nullptr;
            if (ordered) {
                must(cudaMallocAsync(&block, shape.bytes, stream));
                must(cudaFreeAsync(block, stream));
            } else {
                must(cudaMalloc(&block, shape.bytes));
                must(cudaFree(block));
            }
        };
    });
    for (void* other : others) {
        if (other != nullptr) must(ordered ? cudaFreeAsync(other, streams[0]) : cudaFree(other));
    }
    must(cudaDeviceSynchronize());
    must(cudaMemPoolTrimTo(pool, 0));
    for (const cudaStream_t stream : streams) must(cudaStreamDestroy(stream));
}
#endif

template <class Body>
void add(const std::string& name, const Shape& shape, Body&& body) {
    const std::string full = name + "/" + format_bytes(shape.bytes) + "/threads:" + std::to_string(shape.threads) +
                             "/live:" + std::to_string(shape.live);
    benchmark::RegisterBenchmark(full.c_str(),
                                 [shape, body](benchmark::State& state) {
                                     try {
                                         body(state, shape);
                                     } catch (const std::exception& error) {
                                         state.SkipWithError(error.what());
                                     }
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kNanosecond);
}

template <Driver D>
void register_all(const D& driver) {
    const std::size_t many = on_host<D> ? 10'000 : 100'000;
    for (const int threads : {1, 8}) {
        for (const std::size_t live : {std::size_t{0}, many}) {
            for (const std::size_t bytes : {4_KiB, 64_KiB, 2_MiB}) {
                const Shape shape{threads, bytes, live, on_host<D> ? 200 : 4000};
                add("memsaver/idle", shape,
                    [driver](auto& state, const Shape& s) { ours(state, driver, s, Free::idle); });
                add("memsaver/plain", shape,
                    [driver](auto& state, const Shape& s) { ours(state, driver, s, Free::plain); });
                add("memsaver/stream", shape,
                    [driver](auto& state, const Shape& s) { ours(state, driver, s, Free::stream); });
                add("memsaver/ordered", shape,
                    [driver](auto& state, const Shape& s) { ours(state, driver, s, Free::ordered); });
#if MEMSAVER_BENCH_CUDART
                if constexpr (!on_host<D>) {
                    Shape fewer = shape;
                    fewer.samples = 1000;
                    add("cudaMallocAsync", fewer, [](auto& state, const Shape& s) { runtime(state, s, true); });
                    fewer.samples = threads == 1 ? 60 : 10; // each pair takes a device-wide lock
                    add("cudaMalloc", fewer, [](auto& state, const Shape& s) { runtime(state, s, false); });
                    if (threads != 1) continue;
                    add("memsaver switched off", fewer,
                        [driver](auto& state, const Shape& s) { ours(state, driver, s, Free::plain, false); });
                }
#endif
            }
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
