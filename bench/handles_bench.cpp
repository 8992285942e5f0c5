// In how large handles should a large block lie? The driver's own calls, in handles of several sizes, on pages as they
// are found and on pages that have been in use; with and without the flag for network cards, which other libraries set.
//
// Between two calls the device is drained and asked what is free, as programs do. Decision 3 says what is open.
#include "bench.hpp"
#include "floor.hpp"

#if MEMSAVER_BENCH_CUDART
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <vector>

namespace {

using namespace bench;

constexpr int cycles = 6; ///< of which the first is told by itself

/// What a neighbour has done before: took all but 2 GiB, wrote to it, and gave it back.
void use_all_pages() {
#if MEMSAVER_BENCH_CUDART
    std::vector<void*> taken;
    std::size_t free = 0;
    std::size_t total = 0;
    void* block = nullptr;
    while (cudaMemGetInfo(&free, &total) == cudaSuccess && free > 3_GiB && cudaMalloc(&block, 1_GiB) == cudaSuccess) {
        taken.push_back(block);
        (void)cudaMemset(block, 1, 1_GiB);
    }
    (void)cudaDeviceSynchronize();
    for (void* const each : taken) (void)cudaFree(each);
#endif
}

template <Driver D>
void cycle(benchmark::State& state, const D& driver, std::size_t bytes, std::size_t split, bool in_use_before) try {
    if (in_use_before) use_all_pages();
    Floor<D> pages{driver, bytes, split};
    std::vector<double> pauses;
    std::vector<double> resumes;
    const auto timed = [&](std::vector<double>& into, auto&& act) {
        check(driver.drain(), "drain the device");
        (void)memory_of(driver);
        into.push_back(milliseconds([&] {
            act();
            check(driver.drain(), "drain the device");
        }));
    };
    for (auto _ : state) {
        timed(resumes, [&] { pages.resume(); });
        timed(pauses, [&] { pages.pause(); });
        state.SetIterationTime((resumes.back() + pauses.back()) / 1000);
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["handles"] = static_cast<double>(pages.handles());
    state.counters["first_resume_ms"] = resumes.front();
    resumes.erase(resumes.begin());
    state.counters["resume_ms"] = median(resumes);
    state.counters["pause_ms"] = median(pauses);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_on(const D& driver, const std::string& who, bool in_use_before) {
    for (const std::size_t bytes : {8_GiB, 64_GiB}) {
        for (const std::size_t split : {256_MiB, 1_GiB, 8_GiB, 64_GiB}) {
            if (bytes > memory_of(driver).free_bytes || split > bytes) continue;
            const std::string name = "handles/" + who + (in_use_before ? "/in use before/" : "/as found/") +
                                     format_bytes(bytes) + "/" + format_bytes(split);
            fixed(benchmark::RegisterBenchmark(
                      name.c_str(), [=](benchmark::State& s) { cycle(s, driver, bytes, split, in_use_before); }),
                  cycles);
        }
    }
}

template <Driver D>
void register_all(const D& driver) {
    for (const bool in_use_before : {false, true}) {
        register_on(driver, "plain", in_use_before);
        if constexpr (!on_host<D>) register_on(CudaDriver{driver.device(), {.rdma = true}}, "rdma", in_use_before);
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
