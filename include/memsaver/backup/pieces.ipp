// Definitions of pieces.hpp.
#pragma once

#include "memsaver/backup/pieces.hpp"
#include "memsaver/core/ranges.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

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

MEMSAVER_INLINE std::vector<std::vector<Unit>> in_wanted_order(std::vector<Unit> units, const std::vector<Range>& first,
                                                               bool cut) {
    std::vector<std::vector<Unit>> groups(first.size() + 1);
    if (first.empty()) {
        groups.front() = std::move(units);
        return groups;
    }
    std::map<Address, std::pair<Address, std::size_t>> wanted; // begin to end and group, without overlap
    std::vector<Range> known;
    for (std::size_t i = 0; i < first.size(); ++i) {
        const std::vector<Range> fresh = without({first[i]}, known);
        for (const Range& range : fresh) wanted.emplace(range.address, std::pair{range.end(), i});
        known.insert(known.end(), fresh.begin(), fresh.end());
        sort_by_address(known);
    }
    for (const Unit& unit : units) {
        const Address end = unit.device + unit.bytes;
        auto range = wanted.upper_bound(unit.device);
        if (range != wanted.begin() && std::prev(range)->second.first > unit.device) --range;
        if (!cut) {
            std::size_t group = first.size();
            for (; range != wanted.end() && range->first < end; ++range) group = std::min(group, range->second.second);
            groups[group].push_back(unit);
            continue;
        }
        for (Address at = unit.device; at != end;) {
            const bool inside = range != wanted.end() && range->first <= at;
            const Address to = inside                  ? std::min(end, range->second.first)
                               : range != wanted.end() ? std::min(end, range->first)
                                                       : end;
            groups[inside ? range->second.second : first.size()].push_back(
                {at, unit.location + (at - unit.device), static_cast<std::size_t>(to - at)});
            if (inside) ++range;
            at = to;
        }
    }
    std::erase_if(groups, [](const std::vector<Unit>& group) { return group.empty(); });
    return groups;
}

} // namespace detail

} // namespace memsaver::inline v0_3
