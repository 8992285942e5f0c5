// Shared by the benchmarks: the machine they run on, reported in their results, and order statistics. Independent of
// the measurements.
#pragma once

#include <benchmark/benchmark.h>
#include <memsaver/memsaver.hpp>

#ifdef MEMSAVER_BENCH_CUDART
#include <cuda_runtime_api.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace bench {

using namespace memsaver;
using namespace memsaver::detail; // baselines are built from the library's internal parts
using Clock = std::chrono::steady_clock;

/// Without a GPU, benchmarks still run, shorter and on a host machine whose pages they do not touch, so that they stay
/// tested. Their times are then meaningless, but their counts are valid.
template <class D>
inline constexpr bool on_host = std::is_same_v<D, HostDriver>;
inline constexpr std::size_t host_capacity = 128_GiB;

template <class Act>
double milliseconds(Act&& act) {
    const auto start = Clock::now();
    act();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Returns the value below which the share `q` of `values` lies; 0 if there are none.
inline double quantile(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
    return values[at];
}
inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

template <Driver D>
DeviceMemory memory_of(const D& driver) {
    DeviceMemory memory;
    check(driver.memory(memory), "query the device's memory");
    return memory;
}
template <Driver D>
double used_bytes(const D& driver) {
    const DeviceMemory memory = memory_of(driver);
    return static_cast<double>(memory.total_bytes - memory.free_bytes);
}

/// Returns the process' resident bytes.
inline double resident_bytes() {
    std::ifstream file{"/proc/self/statm"};
    long long size = 0;
    long long resident = 0;
    file >> size >> resident;
    return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Returns a second machine of the same kind, if there is one.
inline std::optional<CudaDriver> second_machine(const CudaDriver&) {
    if (CudaDriver::device_count() < 2) return {};
    return CudaDriver{1};
}
inline std::optional<HostDriver> second_machine(const HostDriver&) { return HostDriver{host_capacity, {.device = 1}}; }

/// Pages never used since the machine started are faster to allocate than all later ones. Allocates every page once, so
/// that all later measurements have the same conditions.
template <Driver D>
void use_up_fresh_pages(const D& driver) {
    if constexpr (!on_host<D>) {
        static std::vector<int> done;
        if (std::find(done.begin(), done.end(), driver.device()) != done.end()) return;
        done.push_back(driver.device());
        std::vector<PageHandle> handles;
        for (PageHandle handle; driver.create(1_GiB, handle).ok();) handles.push_back(handle);
        for (const PageHandle handle : handles) check(driver.release(handle), "release pages");
    }
}

/// Calls `register_all(driver)` with a driver of this machine, then runs the registered benchmarks.
template <class RegisterAll>
int run(int argc, char** argv, RegisterAll&& register_all) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    with_default_driver(
        [&](auto driver) {
            benchmark::AddCustomContext("machine", driver.name());
            benchmark::AddCustomContext("memsaver", std::to_string(version.major) + "." +
                                                        std::to_string(version.minor) + "." +
                                                        std::to_string(version.patch));
#ifdef MEMSAVER_BENCH_CUDART
            benchmark::AddCustomContext("toolkit", std::to_string(CUDART_VERSION / 1000) + "." +
                                                       std::to_string(CUDART_VERSION % 1000 / 10));
#endif
            register_all(driver);
            benchmark::RunSpecifiedBenchmarks();
        },
        {.host_capacity = host_capacity});
    benchmark::Shutdown();
    return 0;
}

/// For benchmarks that time themselves: each iteration is one sample, and the number of samples is fixed rather than
/// derived from their duration.
inline benchmark::internal::Benchmark* fixed(benchmark::internal::Benchmark* one, int iterations) {
    return one->UseManualTime()->Iterations(iterations)->Unit(benchmark::kMillisecond);
}

} // namespace bench
