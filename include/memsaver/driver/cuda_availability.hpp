// Whether a CUDA device can be used, and if not, why.
// Values only: knows nothing of the CUDA headers.
#pragma once

#include <string>

namespace memsaver::inline v0_1 {

enum class CudaProblem : unsigned char {
    none,
    built_without_headers, ///< the program was compiled where no toolkit was
    no_library,
    driver_too_old,
    missing_entry_point,
    driver_failed, ///< it is there, and answered with an error
    no_device,
    bad_device_number, ///< there are devices, but not this one
    no_virtual_memory, ///< the device cannot map pages at addresses of our choice
};

/// True where a CudaDriver can be made; otherwise `reason` is a sentence for people.
struct CudaAvailability {
    CudaProblem problem = CudaProblem::none;
    std::string reason = {};

    [[nodiscard]] explicit operator bool() const noexcept { return problem == CudaProblem::none; }
};

} // namespace memsaver::inline v0_1
