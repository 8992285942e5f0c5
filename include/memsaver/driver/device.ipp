// Definitions of device.hpp: what the operating system does.
#pragma once

#include "memsaver/driver/device.hpp"
#include "memsaver/driver/device_calls.hpp"
#include "memsaver/driver/system.hpp"

namespace memsaver::inline v0_3 {

#define MEMSAVER_ASK_SYSTEM(name, parameters, arguments, ...)                                                          \
    MEMSAVER_INLINE Status Device::name parameters noexcept { return detail::SystemMemory::name arguments; }
MEMSAVER_SYSTEM_CALLS(MEMSAVER_ASK_SYSTEM)
#undef MEMSAVER_ASK_SYSTEM

} // namespace memsaver::inline v0_3
