// Cuts the bytes of a transfer into pieces. Pure arithmetic.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Bytes of one block and where they are kept: at a host address, or at an offset in a file.
struct Unit {
    Address device = 0;
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

[[nodiscard]] inline std::size_t bytes_of(const Vector<Unit>& units) noexcept {
    std::size_t sum = 0;
    for (const Unit& unit : units) sum += unit.bytes;
    return sum;
}

class CopyablePages;

/// Units that are moved together: they lie in one cell of the store, in order of location. They may overlap there, as
/// where two blocks are loaded from one place of a file.
struct Piece {
    Vector<Unit> units;
    std::shared_ptr<CopyablePages> pages{}; ///< null: copies cannot reach the bytes where they are kept

    [[nodiscard]] std::uint64_t location() const noexcept { return units.front().location; }
    [[nodiscard]] std::uint64_t end() const noexcept {
        std::uint64_t end = 0;
        for (const Unit& unit : units) end = std::max(end, unit.location + unit.bytes);
        return end;
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_of(units); }
    /// Returns whether any of its bytes lie in a range of device addresses.
    [[nodiscard]] bool holds(Range range) const noexcept {
        return any_in(units, [&](const Unit& unit) {
            return unit.device < range.end() && range.address < unit.device + unit.bytes;
        });
    }

    /// Calls `copy(unit)`, with units that are adjacent on both sides joined into one. Stops at the first failure and
    /// returns it.
    Status each_copy(FunctionRef<Status(const Unit&)> copy) const {
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

[[nodiscard]] inline std::size_t bytes_of(const Vector<Piece>& pieces) noexcept {
    std::size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.bytes();
    return sum;
}

/// Cuts units at multiples of `step` of the device address, where parts of a block can be paused or resumed alone.
inline Vector<Unit> cut_at_addresses(const Vector<Unit>& units, std::size_t step) {
    Vector<Unit> parts;
    for (Unit unit : units) {
        while (unit.bytes != 0) {
            const std::size_t bytes = std::min(unit.bytes, step - static_cast<std::size_t>(unit.device % step));
            parts.push_back({unit.device, unit.location, bytes});
            unit = {unit.device + bytes, unit.location + bytes, unit.bytes - bytes};
        }
    }
    return parts;
}

/// Groups units in the order in which their bytes are needed: one group for each range of `first` that overlaps any,
/// and one for the rest. The ranges may overlap. If `cut`, units are cut at the borders of the ranges; otherwise a unit
/// belongs to the first range that overlaps it.
inline Vector<Vector<Unit>> in_wanted_order(Vector<Unit> units, const std::vector<Range>& first, bool cut) {
    Vector<Vector<Unit>> groups;
    for (const Range& range : first) {
        Vector<Unit> wanted;
        Vector<Unit> others;
        for (const Unit& unit : units) {
            const auto add = [&](Vector<Unit>& to, Address begin, Address end) {
                if (begin < end) to.push_back({begin, unit.location + (begin - unit.device), end - begin});
            };
            const Address unit_end = unit.device + unit.bytes;
            const Address begin = std::max(unit.device, range.address);
            const Address end = std::min(unit_end, range.end());
            if (begin >= end || !cut) {
                add(begin >= end ? others : wanted, unit.device, unit_end);
                continue;
            }
            add(others, unit.device, begin);
            add(wanted, begin, end);
            add(others, end, unit_end);
        }
        if (!wanted.empty()) groups.push_back(std::move(wanted));
        units = std::move(others);
    }
    if (!units.empty()) groups.push_back(std::move(units));
    return groups;
}

/// Sorts units by location, and cuts them at multiples of `cell` and wherever `apart(a, b)` is true for two neighbors.
/// A given block is always cut into the same units.
inline Vector<Piece> cut_into_pieces(Vector<Unit> units, std::size_t cell,
                                     FunctionRef<bool(const Unit&, const Unit&)> apart) {
    sort_by(units, [](const Unit& unit) { return unit.location; });
    Vector<Piece> pieces;
    for (Unit unit : units) {
        while (unit.bytes != 0) {
            const std::size_t room = cell - static_cast<std::size_t>(unit.location % cell);
            const Unit part{unit.device, unit.location, std::min(unit.bytes, room)};
            const bool together = !pieces.empty() && pieces.back().location() / cell == part.location / cell &&
                                  !apart(pieces.back().units.back(), part);
            if (!together) pieces.push_back({});
            pieces.back().units.push_back(part);
            unit = {unit.device + part.bytes, unit.location + part.bytes, unit.bytes - part.bytes};
        }
    }
    return pieces;
}

/// Sees pieces as they are saved and restored. Called from any of the threads that move them, several at once.
class PieceObserver {
public:
    PieceObserver& operator=(PieceObserver&&) = delete;
    virtual ~PieceObserver() = default;

    /// Names the tag, for error messages. Called before any of its bytes are moved.
    virtual void about(const std::string& /*tag*/) {}
    /// Called with the bytes of a unit that was saved. May throw.
    virtual void saved(const Unit& unit, const std::byte* bytes) = 0;
    /// Called with bytes that are about to be restored. Throws an Error if they must not be.
    virtual void restoring(const Unit& unit, const std::byte* bytes) = 0;
    /// The bytes saved at these locations are no longer needed; the locations may be reused. Called while no transfer
    /// runs.
    virtual void discarded(std::uint64_t /*location*/, std::size_t /*bytes*/) noexcept {}
};

} // namespace memsaver::inline v0_3::detail
