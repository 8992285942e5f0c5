// error: (marked .+override.+but does not override|hides virtual member function)
// flags: -Wno-overloaded-virtual
// few: the method is named
// A machine whose `unmap` takes only an address.
#include "memsaver/driver/driver.hpp"

#include <cstddef>

struct Machine final : memsaver::DeviceAround {
    using DeviceAround::DeviceAround;
    memsaver::Status unmap(memsaver::Address RIGHT(, std::size_t)) noexcept override { return {}; }
};
