// A range of a host machine's addresses. Does not know what is there.
#pragma once

#include "memsaver/driver/handles.hpp"

#include <cstddef>
#include <limits>

namespace memsaver::inline v0_1 {

struct HostRange {
    Address address = 0;
    std::size_t bytes = 0;

    /// Whether `end()` exists.
    [[nodiscard]] bool valid() const noexcept { return bytes <= std::numeric_limits<Address>::max() - address; }
    [[nodiscard]] Address end() const noexcept { return address + bytes; }
    [[nodiscard]] bool overlaps(const HostRange& other) const noexcept {
        return bytes != 0 && other.bytes != 0 && address < other.end() && other.address < end();
    }
};

} // namespace memsaver::inline v0_1
