// error: (exception specification of overriding function is more lax|looser exception specification).*
// A machine whose `unmap` is not noexcept.
#include "memsaver/driver/driver.hpp"

#include <cstddef>

struct Machine final : memsaver::DeviceAround {
    using DeviceAround::DeviceAround;
    memsaver::Status unmap(memsaver::Address, std::size_t) RIGHT(noexcept) override { return {}; }
};
