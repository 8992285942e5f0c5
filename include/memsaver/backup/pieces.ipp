// Definitions of pieces.hpp.
#pragma once

#include "memsaver/backup/pieces.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE std::size_t Piece::bytes() const noexcept {
    std::size_t sum = 0;
    for (const Unit& unit : units) sum += unit.bytes;
    return sum;
}

MEMSAVER_INLINE std::vector<Unit> cut_at_addresses(const std::vector<Unit>& units, std::size_t step) {
    std::vector<Unit> parts;
    for (Unit unit : units) {
        while (unit.bytes != 0) {
            const std::size_t bytes = std::min(unit.bytes, step - static_cast<std::size_t>(unit.device % step));
            parts.push_back({unit.device, unit.location, bytes});
            unit = {unit.device + bytes, unit.location + bytes, unit.bytes - bytes};
        }
    }
    return parts;
}

} // namespace detail

} // namespace memsaver::inline v0_2
