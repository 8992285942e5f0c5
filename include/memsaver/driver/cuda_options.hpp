// What a program may ask of a CudaDriver, and whether one can be had. Values only.
#pragma once

#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

/// Where the CUDA driver is looked for, as dlopen looks. Pass another name to use a driver at an unusual place.
inline constexpr const char* default_cuda_library = "libcuda.so.1";

/// In which form pages can be handed to other processes. Fixed when pages are created, so fixed for the driver.
enum class ExportHandles : unsigned char {
    none,
    file_descriptor,
    fabric, ///< between hosts of one NVLink domain
};

/// Options of a CudaDriver. Drivers with different options are different drivers.
struct CudaDriverOptions {
    /// Other devices that may read and write its pages; granted again whenever pages are mapped. Order and repetition
    /// do not matter, its own number is ignored.
    std::vector<int> peers = {};
    /// A device that cannot do it makes the driver's constructor throw Unavailable.
    ExportHandles export_handles = ExportHandles::none;
    /// Pages that network cards and other devices can reach by themselves, where the device supports it; ignored
    /// elsewhere. Registrations must be dropped before a pause.
    bool rdma = false;

    friend bool operator==(const CudaDriverOptions&, const CudaDriverOptions&) = default;
};

/// Why there can be no CudaDriver.
enum class CudaProblem : unsigned char {
    none,
    no_library,          ///< the driver's library was not found, or does not load
    driver_too_old,      ///< older than CUDA 12.0
    missing_entry_point, ///< the library lacks a function that memsaver calls
    driver_failed,       ///< it is there, and answered with an error
    no_device,           ///< the driver is there, and finds no device
    bad_device_number,   ///< there are devices, but not this one
    no_virtual_memory,   ///< the device cannot map pages at addresses of our choice
};

/// True where a CudaDriver can be made; otherwise `reason` is a sentence for people.
struct CudaAvailability {
    CudaProblem problem = CudaProblem::none;
    std::string reason = {};

    [[nodiscard]] explicit operator bool() const noexcept { return problem == CudaProblem::none; }
};

} // namespace memsaver::inline v0_2
