// Cuts the bytes of a transfer into pieces. Pure arithmetic.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Bytes of one block and where they are kept: at a host address, or at an offset in a file.
struct Unit {
    Address device = 0;
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

class CopyablePages;

/// Units that are moved together: they lie in one cell of the store, in order of location. They may overlap there, as
/// where two blocks are loaded from one place of a file.
struct Piece {
    std::vector<Unit> units;
    std::shared_ptr<CopyablePages> pages{}; ///< null: copies cannot reach the bytes where they are kept

    [[nodiscard]] std::uint64_t location() const noexcept { return units.front().location; }
    [[nodiscard]] std::uint64_t end() const noexcept;
    [[nodiscard]] std::size_t bytes() const noexcept;
    /// Returns whether any of its bytes lie in a range of device addresses.
    [[nodiscard]] bool holds(Range range) const noexcept;

    /// Calls `copy(unit)`, with units that are adjacent on both sides joined into one. Stops at the first failure and
    /// returns it.
    Status each_copy(FunctionRef<Status(const Unit&)> copy) const;
};

[[nodiscard]] std::size_t bytes_of(const std::vector<Unit>& units) noexcept;
[[nodiscard]] std::size_t bytes_of(const std::vector<Piece>& pieces) noexcept;

/// Cuts units at multiples of `step` of the device address, where parts of a block can be paused or resumed alone.
std::vector<Unit> cut_at_addresses(const std::vector<Unit>& units, std::size_t step);

/// Groups units in the order in which their bytes are needed: one group for each range of `first` that overlaps any,
/// and one for the rest. The ranges may overlap. If `cut`, units are cut at the borders of the ranges; otherwise a unit
/// belongs to the first range that overlaps it.
std::vector<std::vector<Unit>> in_wanted_order(std::vector<Unit> units, const std::vector<Range>& first, bool cut);

/// Sorts units by location, and cuts them at multiples of `cell` and wherever `apart(a, b)` is true for two neighbors.
/// A given block is always cut into the same units.
std::vector<Piece> cut_into_pieces(std::vector<Unit> units, std::size_t cell,
                                   FunctionRef<bool(const Unit&, const Unit&)> apart);

/// As above, but in the order in which bytes are needed. If `at_borders`, also cuts at the borders of `first`, so that
/// those bytes wait for nothing else; a block is then cut differently each time.
std::vector<Piece> cut_in_wanted_order(std::vector<Unit> units, std::size_t cell, const std::vector<Range>& first,
                                       bool at_borders, FunctionRef<bool(const Unit&, const Unit&)> apart);

/// Sees pieces as they are saved and restored. Called from any of the threads that move them, several at once.
class PieceObserver {
public:
    PieceObserver() = default;
    PieceObserver(const PieceObserver&) = delete;
    PieceObserver& operator=(const PieceObserver&) = delete;
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

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/pieces.ipp"
#endif
