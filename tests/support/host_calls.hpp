// Classifies a driver's calls: those on host pages and files do not involve the device.
#pragma once

#include <memsaver/testing/testing.hpp>

namespace test {

/// These calls keep working after the device is lost.
inline bool is_of_the_host(memsaver::Call call) noexcept {
    switch (call) {
#define MEMSAVER_CASE(name, ...) case memsaver::Call::name:
        MEMSAVER_SYSTEM_CALLS(MEMSAVER_CASE)
#undef MEMSAVER_CASE
        return true;
    default: return false;
    }
}
} // namespace test
