// What a program may ask of a CudaDriver.
// Values only: knows nothing of the CUDA headers, nor whether there is a driver.
#pragma once

#include <vector>

namespace memsaver::inline v0_1 {

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

} // namespace memsaver::inline v0_1
