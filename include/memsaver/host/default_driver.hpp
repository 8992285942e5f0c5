// Selects a driver: the GPU if there is one, host memory otherwise.
#pragma once

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/cuda_driver.hpp"
#include "memsaver/host/host_driver.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3 {

/// Options of `default_driver` for the GPU and for the fallback.
struct DefaultDriverOptions {
    int device = 0;
    CudaDriverOptions cuda = {};
    const char* cuda_library = default_cuda_library;
    /// Capacity in bytes if host memory is used; 0: half of the physical memory, but at most 8 GiB.
    std::size_t host_capacity = 0;
};

/// Returns a CudaDriver if `CudaDriver::available(options.device)` succeeds, otherwise a HostDriver. Throws what the
/// driver's constructor throws: there is no fallback for a device that exists but cannot be opened, or for an invalid
/// device number.
[[nodiscard]] AnyDriver default_driver(const DefaultDriverOptions& options = {});

namespace detail {

/// Returns the capacity that `DefaultDriverOptions::host_capacity` selects; the default is a multiple of 1 MiB.
std::size_t host_capacity_or_default(std::size_t asked) noexcept;

} // namespace detail

/// Calls `run` once with the result of `default_driver`, as its concrete type, and returns its result. Throws what
/// either throws.
template <class Run>
decltype(auto) with_default_driver(Run&& run, const DefaultDriverOptions& options = {}) {
    static_assert(std::is_same_v<std::invoke_result_t<Run, CudaDriver>, std::invoke_result_t<Run, HostDriver>>,
                  "with_default_driver: the callable must return the same type for both drivers");
    const AnyDriver driver = default_driver(options);
    if (const auto cuda = driver.as<CudaDriver>()) return std::forward<Run>(run)(CudaDriver{*cuda});
    return std::forward<Run>(run)(HostDriver{*driver.as<HostDriver>()});
}

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/default_driver.ipp"
#endif
