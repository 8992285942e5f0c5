// CudaDriver: the handle of an NVIDIA GPU, through the CUDA driver's virtual memory calls. Loads the CUDA driver at run
// time and never links against it. Knows nothing about tags, policies or the CUDA runtime.
#pragma once

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/cuda_options.hpp"

#include <optional>

namespace memsaver::inline v0_3 {

/// A CUDA device, by its number. A cheap handle: copies share one retained primary context, the one that the CUDA
/// runtime also uses, and the last copy releases it. Two drivers are equal if they name one device with the same
/// options.
///
/// Every method may be called from any thread, with any context current or none, also while streams are being captured.
/// It leaves the thread's context and capture mode unchanged. No method throws or allocates on the host. Device
/// documents each method, and cuda_device.hpp what is specific to CUDA.
class CudaDriver : public AnyDriver {
public:
    /// Throws Misuse if no device has this number (also for a peer), and Unavailable, with the text of `available()`,
    /// if there is no usable device. Allocates the device's context if it has none yet.
    explicit CudaDriver(int device, CudaDriverOptions options = {}, const char* library = default_cuda_library);

    /// The driver as a CudaDriver, if its machine is a CUDA device; see AnyDriver::as.
    [[nodiscard]] static std::optional<CudaDriver> from(const AnyDriver& driver);

    /// Reports whether `CudaDriver{device}` would find a driver and a device, and if not, why. Does not create a
    /// context.
    [[nodiscard]] static CudaAvailability available(int device = 0, const char* library = default_cuda_library);
    /// The number of devices that the driver reports, usable or not; 0 if there is no driver.
    [[nodiscard]] static int device_count(const char* library = default_cuda_library);

private:
    explicit CudaDriver(const AnyDriver& driver) : AnyDriver{driver} {}
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/cuda_driver.ipp"
#endif
