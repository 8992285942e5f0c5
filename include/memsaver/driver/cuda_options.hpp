// The options of a CudaDriver, and why one may be unavailable. Values only.
#pragma once

#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

/// The CUDA driver library, found as dlopen finds it. Pass another name to use a driver at an unusual place.
inline constexpr const char* default_cuda_library = "libcuda.so.1";

/// The form in which pages can be exported to other processes. Fixed when pages are created, so fixed for the driver.
enum class ExportHandles : unsigned char {
    none,
    file_descriptor,
    fabric, ///< between hosts of one NVLink domain
};

/// Options of a CudaDriver. Drivers with different options compare unequal.
struct CudaDriverOptions {
    /// Other devices that may read and write its pages; access is granted again whenever pages are mapped. Order and
    /// repetition do not matter; the driver's own number is ignored.
    std::vector<int> peers = {};
    /// The driver's constructor throws Unavailable if the device does not support it.
    ExportHandles export_handles = ExportHandles::none;
    /// Pages that network cards and other devices can access directly, where the device supports it; ignored elsewhere.
    /// Registrations must be dropped before a pause.
    bool rdma = false;

    friend bool operator==(const CudaDriverOptions&, const CudaDriverOptions&) = default;
};

/// Why a CudaDriver cannot be made.
enum class CudaProblem : unsigned char {
    none,
    no_library,          ///< the driver's library was not found, or does not load
    driver_too_old,      ///< older than CUDA 12.0
    missing_entry_point, ///< the library lacks a function that memsaver calls
    driver_failed,       ///< the driver is installed, but returned an error
    no_device,           ///< the driver is installed, but finds no device
    bad_device_number,   ///< there are devices, but none with this number
    no_virtual_memory,   ///< the device cannot map pages at given addresses
};

/// True if a CudaDriver can be made; otherwise `reason` is a human-readable sentence.
struct CudaAvailability {
    CudaProblem problem = CudaProblem::none;
    std::string reason = {};

    [[nodiscard]] explicit operator bool() const noexcept { return problem == CudaProblem::none; }
};

} // namespace memsaver::inline v0_3
