// Classifies a driver's calls: those on host pages and files do not involve the device.
#pragma once

#include <memsaver/testing/testing.hpp>

namespace test {

/// These calls keep working after the device is lost.
inline bool is_of_the_host(memsaver::Call call) noexcept {
    using memsaver::Call;
    switch (call) {
    case Call::map_host:
    case Call::unmap_host:
    case Call::populate_host:
    case Call::host_available:
    case Call::open_file:
    case Call::close_file:
    case Call::write_file:
    case Call::read_file:
    case Call::allocate_file:
    case Call::punch_file:
    case Call::open_source:
    case Call::file_facts:
    case Call::file_cached: return true;
    default: return false;
    }
}
} // namespace test
