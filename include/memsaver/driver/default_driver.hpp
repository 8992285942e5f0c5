// The machine at hand: runs a program on a GPU where there is one, and on host memory elsewhere.
// Knows nothing of what the program does.
#pragma once

#include "memsaver/driver/cuda_driver.hpp"
#include "memsaver/driver/host_driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_1 {

/// What `with_default_driver` looks for, and what it falls back to.
struct DefaultDriverOptions {
    int device = 0;
    CudaDriverOptions cuda = {};
    const char* cuda_library = default_cuda_library;
    /// Bytes of the host machine; 0 stands for half of the physical memory, but at most 8 GiB.
    std::size_t host_capacity = 0;
};

/// The bytes that `DefaultDriverOptions::host_capacity` stands for: a multiple of 1 MiB.
inline std::size_t host_capacity_or_default(std::size_t asked) noexcept {
    if (asked != 0) return asked;
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const long page = ::sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return 1_GiB;
    const std::size_t half = static_cast<std::size_t>(pages) / 2 * static_cast<std::size_t>(page);
    return std::clamp<std::size_t>(align_down(half, 1_MiB), 1_MiB, 8_GiB);
}

} // namespace memsaver::inline v0_1

// In a namespace that says which CudaDriver it means, as that class is.
#if MEMSAVER_HAS_CUDA_HEADERS
namespace memsaver::inline v0_1::inline with_cuda_headers {
#else
namespace memsaver::inline v0_1::inline without_cuda_headers {
#endif

/// Calls `run` once, with a CudaDriver where `CudaDriver::available(options.device)` says yes and with a HostDriver
/// elsewhere, and returns what it returns. Throws what `run` throws, and what the driver's constructor throws: a device
/// that is there but cannot be opened is not silently replaced, nor is a number that no device has.
template <class Run>
decltype(auto) with_default_driver(Run&& run, const DefaultDriverOptions& options = {}) {
    static_assert(std::is_same_v<std::invoke_result_t<Run, CudaDriver>, std::invoke_result_t<Run, HostDriver>>,
                  "with_default_driver: what is run must return the same type for either driver");
    const CudaAvailability found = CudaDriver::available(options.device, options.cuda_library);
    if (found || found.problem == CudaProblem::bad_device_number) {
        return std::forward<Run>(run)(CudaDriver{options.device, options.cuda, options.cuda_library});
    }
    return std::forward<Run>(run)(HostDriver{host_capacity_or_default(options.host_capacity)});
}

} // inline namespace
