// error: (exception specification of overriding function is more lax|looser exception specification).*
// A machine whose `unmap` is not noexcept.
#include "memsaver/driver/driver.hpp"

#include <cstddef>

#ifdef MEMSAVER_CONTROL
#define PROMISE noexcept
#else
#define PROMISE
#endif

struct Machine final : memsaver::DeviceAround {
    using DeviceAround::DeviceAround;
    memsaver::Status unmap(memsaver::Address, std::size_t) PROMISE override { return {}; }
};
