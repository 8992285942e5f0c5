// The machine at hand: runs a program on a GPU where there is one, and on host memory elsewhere.
// Knows nothing of what the program does.
#pragma once

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/cuda_driver.hpp"
#include "memsaver/host/host_driver.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_2 {

/// What `default_driver` looks for, and what it falls back to.
struct DefaultDriverOptions {
    int device = 0;
    CudaDriverOptions cuda = {};
    const char* cuda_library = default_cuda_library;
    /// Bytes of the host machine; 0 stands for half of the physical memory, but at most 8 GiB.
    std::size_t host_capacity = 0;
};

/// A CudaDriver where `CudaDriver::available(options.device)` says yes, and a HostDriver elsewhere. Throws what the
/// driver's constructor throws: a device that is there but cannot be opened is not silently replaced, nor is a number
/// that no device has.
[[nodiscard]] AnyDriver default_driver(const DefaultDriverOptions& options = {});

namespace detail {

/// The bytes that `DefaultDriverOptions::host_capacity` stands for: a multiple of 1 MiB.
std::size_t host_capacity_or_default(std::size_t asked) noexcept;

} // namespace detail

/// Calls `run` once with what `default_driver` answers, by its own type, and returns what it returns. Throws what
/// either throws.
template <class Run>
decltype(auto) with_default_driver(Run&& run, const DefaultDriverOptions& options = {}) {
    static_assert(std::is_same_v<std::invoke_result_t<Run, CudaDriver>, std::invoke_result_t<Run, HostDriver>>,
                  "with_default_driver: what is run must return the same type for either driver");
    const AnyDriver driver = default_driver(options);
    if (const auto* const cuda = driver.target<CudaDriver>()) return std::forward<Run>(run)(CudaDriver{*cuda});
    return std::forward<Run>(run)(HostDriver{*driver.target<HostDriver>()});
}

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/default_driver.ipp"
#endif
