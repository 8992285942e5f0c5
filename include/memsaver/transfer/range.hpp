// A range of device addresses.
#pragma once

#include "memsaver/driver/handles.hpp"

#include <cstddef>

namespace memsaver::inline v0_1 {

struct Range {
    Address address = 0;
    std::size_t bytes = 0;

    [[nodiscard]] constexpr Address end() const noexcept { return address + bytes; }
    friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// Whether they have a byte in common.
[[nodiscard]] constexpr bool overlap(const Range& a, const Range& b) noexcept {
    return a.address < b.end() && b.address < a.end();
}

} // namespace memsaver::inline v0_1
