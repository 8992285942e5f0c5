// Definitions of cuda_driver.hpp.
#pragma once

#include "memsaver/driver/cuda_device.hpp"
#include "memsaver/driver/cuda_driver.hpp"

#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE CudaDriver::CudaDriver(int device, CudaDriverOptions options, const char* library)
    : AnyDriver{detail::new_shared<detail::CudaDevice>(device, std::move(options), library)} {}

MEMSAVER_INLINE std::optional<CudaDriver> CudaDriver::from(const AnyDriver& driver) {
    if (dynamic_cast<const detail::CudaDevice*>(&driver.machine()) == nullptr) return std::nullopt;
    return CudaDriver{driver};
}

MEMSAVER_INLINE CudaAvailability CudaDriver::available(int device, const char* library) {
    return detail::CudaDevice::usable(detail::CudaApi{library}, device);
}

MEMSAVER_INLINE int CudaDriver::device_count(const char* library) {
    int count = 0;
    return detail::CudaDevice::count_devices(detail::CudaApi{library}, count) ? count : 0;
}

} // namespace memsaver::inline v0_3
