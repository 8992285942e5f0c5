// Definitions of default_driver.hpp.
#pragma once

#include "memsaver/host/default_driver.hpp"

#include <unistd.h>

#include <algorithm>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE AnyDriver default_driver(const DefaultDriverOptions& options) {
    const CudaAvailability found = CudaDriver::available(options.device, options.cuda_library);
    if (found || found.problem == CudaProblem::bad_device_number) {
        return CudaDriver{options.device, options.cuda, options.cuda_library};
    }
    return HostDriver{detail::host_capacity_or_default(options.host_capacity)};
}

namespace detail {

MEMSAVER_INLINE std::size_t host_capacity_or_default(std::size_t asked) noexcept {
    if (asked != 0) return asked;
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const long page = ::sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return 1_GiB;
    const std::size_t half = static_cast<std::size_t>(pages) / 2 * static_cast<std::size_t>(page);
    return std::clamp<std::size_t>(align_down(half, 1_MiB), 1_MiB, 8_GiB);
}

} // namespace detail

} // namespace memsaver::inline v0_3
