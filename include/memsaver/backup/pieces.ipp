// Definitions of pieces.hpp.
#pragma once

#include "memsaver/backup/pieces.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::size_t bytes_of(const std::vector<Unit>& units) noexcept {
    std::size_t sum = 0;
    for (const Unit& unit : units) sum += unit.bytes;
    return sum;
}

MEMSAVER_INLINE std::size_t bytes_of(const std::vector<Piece>& pieces) noexcept {
    std::size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.bytes();
    return sum;
}

MEMSAVER_INLINE std::size_t Piece::bytes() const noexcept { return bytes_of(units); }

MEMSAVER_INLINE std::uint64_t Piece::end() const noexcept {
    std::uint64_t end = 0;
    for (const Unit& unit : units) end = std::max(end, unit.location + unit.bytes);
    return end;
}

MEMSAVER_INLINE bool Piece::holds(Range range) const noexcept {
    return any_in(
        units, [&](const Unit& unit) { return unit.device < range.end() && range.address < unit.device + unit.bytes; });
}

MEMSAVER_INLINE Status Piece::each_copy(FunctionRef<Status(const Unit&)> copy) const {
    for (std::size_t i = 0; i < units.size();) {
        Unit joined = units[i];
        for (++i; i < units.size() && units[i].location == joined.location + joined.bytes &&
                  units[i].device == joined.device + joined.bytes;
             ++i) {
            joined.bytes += units[i].bytes;
        }
        if (const Status status = copy(joined); !status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE std::vector<Piece> cut_into_pieces(std::vector<Unit> units, std::size_t cell,
                                                   FunctionRef<bool(const Unit&, const Unit&)> apart) {
    sort_by(units, [](const Unit& unit) { return unit.location; });
    std::vector<Piece> pieces;
    for (Unit unit : units) {
        while (unit.bytes != 0) {
            const std::size_t room = cell - static_cast<std::size_t>(unit.location % cell);
            const Unit part{unit.device, unit.location, std::min(unit.bytes, room)};
            const bool together = !pieces.empty() && pieces.back().location() / cell == part.location / cell &&
                                  !apart(pieces.back().units.back(), part);
            if (!together) pieces.emplace_back();
            pieces.back().units.push_back(part);
            unit = {unit.device + part.bytes, unit.location + part.bytes, unit.bytes - part.bytes};
        }
    }
    return pieces;
}

MEMSAVER_INLINE std::vector<Piece> cut_in_wanted_order(std::vector<Unit> units, std::size_t cell,
                                                       const std::vector<Range>& first, bool at_borders,
                                                       FunctionRef<bool(const Unit&, const Unit&)> apart) {
    std::vector<Piece> pieces;
    for (std::vector<Unit>& group : in_wanted_order(std::move(units), first, at_borders)) {
        for (Piece& piece : cut_into_pieces(std::move(group), cell, apart)) pieces.push_back(std::move(piece));
    }
    return pieces;
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
    struct Wanted {
        Range range;
        std::size_t group;
    };
    std::vector<Wanted> wanted; // by address, without overlap
    std::vector<Range> known;
    for (std::size_t i = 0; i < first.size(); ++i) {
        const std::vector<Range> fresh = without({first[i]}, known);
        for (const Range& range : fresh) wanted.push_back({range, i});
        known.insert(known.end(), fresh.begin(), fresh.end());
        sort_by_address(known);
    }
    sort_by(wanted, [](const Wanted& each) { return each.range.address; });
    for (const Unit& unit : units) {
        const Address end = unit.device + unit.bytes;
        auto range = std::partition_point(wanted.begin(), wanted.end(),
                                          [&](const Wanted& each) { return each.range.end() <= unit.device; });
        if (!cut) {
            std::size_t group = first.size();
            for (; range != wanted.end() && range->range.address < end; ++range) group = std::min(group, range->group);
            groups[group].push_back(unit);
            continue;
        }
        for (Address at = unit.device; at != end;) {
            const bool inside = range != wanted.end() && range->range.address <= at;
            const Address to = inside                  ? std::min(end, range->range.end())
                               : range != wanted.end() ? std::min(end, range->range.address)
                                                       : end;
            groups[inside ? range->group : first.size()].push_back(
                {at, unit.location + (at - unit.device), static_cast<std::size_t>(to - at)});
            if (inside) ++range;
            at = to;
        }
    }
    erase_in(groups, [](const std::vector<Unit>& group) { return group.empty(); });
    return groups;
}

} // namespace detail

} // namespace memsaver::inline v0_3
