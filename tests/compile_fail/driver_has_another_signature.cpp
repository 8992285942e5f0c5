// error: (marked .+override.+but does not override|hides virtual member function)
// few: the method is named
// A machine whose `unmap` takes only an address.
#include "memsaver/driver/driver.hpp"

#include <cstddef>

#ifdef MEMSAVER_CONTROL
#define ARGUMENTS memsaver::Address, std::size_t
#else
#define ARGUMENTS memsaver::Address
#endif

struct Machine final : memsaver::DeviceAround {
    using DeviceAround::DeviceAround;
    memsaver::Status unmap(ARGUMENTS) noexcept override { return {}; }
};
