// How the bytes to move are cut up. Pure arithmetic.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Bytes of one block, and where they are kept: at a host address, or at an offset in a file.
struct Unit {
    Address device = 0;
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

/// What is moved as one: units that lie in one cell of the place where they are kept, in order of location.
struct Piece {
    std::vector<Unit> units;

    [[nodiscard]] std::uint64_t location() const noexcept { return units.front().location; }
    [[nodiscard]] std::uint64_t end() const noexcept { return units.back().location + units.back().bytes; }
    [[nodiscard]] std::size_t bytes() const noexcept;

    /// `copy(unit)` for as few units as can be: neighbours in both places are one copy. Stops at the first answer that
    /// is not ok, and answers that.
    template <class Copy>
    Status each_copy(Copy&& copy) const {
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
};

/// Cuts units at every multiple of `step` of the device's addresses: where a part of a block may come or go alone.
std::vector<Unit> cut_at_addresses(const std::vector<Unit>& units, std::size_t step);

/// The units in the order in which their bytes are wanted: a group for each of `first` that has any, which may overlap,
/// and one for the rest. Where `cut`, at the borders of these ranges; else a unit goes with the first that has any of
/// it.
std::vector<std::vector<Unit>> in_wanted_order(std::vector<Unit> units, const std::vector<Range>& first, bool cut);

/// Cuts units at every multiple of `cell` (of their location) and wherever `apart(a, b)` says that two neighbours are
/// not to be together. The same block always falls into the same units.
template <class Apart>
std::vector<Piece> cut_into_pieces(std::vector<Unit> units, std::size_t cell, Apart&& apart) {
    std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.location < b.location; });
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

/// The same of units in the order in which their bytes are wanted. `at_borders`: cut there too, so that what is wanted
/// first waits for nothing else; a block then falls into other units each time.
template <class Apart>
std::vector<Piece> cut_in_wanted_order(std::vector<Unit> units, std::size_t cell, const std::vector<Range>& first,
                                       bool at_borders, Apart&& apart) {
    std::vector<Piece> pieces;
    for (std::vector<Unit>& group : in_wanted_order(std::move(units), first, at_borders)) {
        std::vector<Piece> more = cut_into_pieces(std::move(group), cell, apart);
        pieces.insert(pieces.end(), std::move_iterator{more.begin()}, std::move_iterator{more.end()});
    }
    return pieces;
}

/// Sees pieces pass, on their way out and back. Called from any of the threads that move them, several at once.
class PieceObserver {
public:
    PieceObserver() = default;
    PieceObserver(const PieceObserver&) = delete;
    PieceObserver& operator=(const PieceObserver&) = delete;
    virtual ~PieceObserver() = default;

    /// Which tag's bytes it sees, for the text of errors. Before any of them pass.
    virtual void about(const std::string& /*tag*/) {}
    /// These are the bytes of a unit that has been saved. May throw.
    virtual void saved(const Unit& unit, const std::byte* bytes) = 0;
    /// These are the bytes that are about to be restored. Throws an Error if they must not be.
    virtual void restoring(const Unit& unit, const std::byte* bytes) = 0;
    /// What was saved at these locations is needed no more; they may be used for something else. While nothing passes.
    virtual void discarded(std::uint64_t /*location*/, std::size_t /*bytes*/) noexcept {}
};

/// See Ticket::Work::place: `piece_of(part)` is the piece of each.
template <class Part, class PieceOf>
std::size_t place_among(const std::vector<Part>& parts, Range range, PieceOf&& piece_of) noexcept {
    for (std::size_t i = parts.size(); i > 0; --i) {
        for (const Unit& unit : piece_of(parts[i - 1]).units) {
            if (overlap({unit.device, unit.bytes}, range)) return i - 1;
        }
    }
    return 0;
}

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/pieces.ipp"
#endif
