// One memory of an arena: its blocks and its extents, which a pause takes away together. Knows nothing about drivers,
// policies or threads.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/heap/block_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// A range of addresses behind one handle. Plain data: the arena that lists it releases it.
struct Extent {
    Address address = 0;
    std::size_t bytes = 0;
    PageHandle pages{};  ///< valid if it owns them
    bool owns = false;   ///< has pages, mapped or not
    bool mapped = false; ///< some pages are mapped: its own, or in an exchange those of another arena
    bool fixed = false;  ///< a handle of its own for ever: never joined with its neighbors, never cut
    bool sealed = false; ///< its pages are published: for reading only, and never handed over to another arena

    [[nodiscard]] Range range() const noexcept { return {address, bytes}; }
    [[nodiscard]] Address end() const noexcept { return address + bytes; }
};

/// The driver's cost per handle is roughly independent of its size up to about this size; larger handles gain nothing.
inline constexpr std::size_t largest_extent = 1_GiB;

/// Returns how many bytes an arena that owns `owned` bytes should create next: doubling from one granule to 32 MiB,
/// then a sixteenth of `owned` in multiples of 32 MiB, up to the largest extent. So at most a sixteenth of an arena, or
/// 32 MiB, is ahead of the program's needs. The next resume joins adjacent extents into one handle.
constexpr std::size_t growth_step(std::size_t owned, std::size_t granularity) noexcept {
    const std::size_t unit = std::max<std::size_t>(granularity, 32_MiB);
    const std::size_t doubling = std::clamp<std::size_t>(std::bit_floor(owned), granularity, unit);
    const std::size_t part = align_down(owned / 16, unit);
    return std::max(granularity, std::min(std::max(doubling, part), std::max(granularity, largest_extent)));
}

/// Returns the ranges of `dead` to leave out of a resume of `total` paused bytes. Ranges of at least 16 MiB are always
/// left out. Shorter ones are left out from the longest on, until the dead bytes that are resumed are at most a
/// sixty-fourth of the live bytes, because each cut costs a handle.
inline std::vector<Range> worth_cutting(std::vector<Range> dead, std::size_t total) {
    constexpr std::size_t always = 16_MiB;
    std::size_t left = 0;
    for (const Range& range : dead) left += range.bytes;
    const std::size_t alive = total - left;
    sort_by(dead, [](const Range& range) { return ~std::uint64_t{range.bytes}; }); // the largest first
    std::size_t cut = 0;
    while (cut < dead.size() && (dead[cut].bytes >= always || left > alive / 64)) left -= dead[cut++].bytes;
    dead.resize(cut);
    return dead;
}

/// Appends to `extents` the parts of `range` for one handle each, without pages: as few as possible, or a single one.
inline void split_into_extents(Range range, std::size_t granularity, bool single, Vector<Extent>& extents) {
    const std::size_t most = single ? range.bytes : std::max(granularity, largest_extent);
    while (range.bytes != 0) {
        const std::size_t bytes = std::min(range.bytes, most);
        extents.push_back({.address = range.address, .bytes = bytes, .fixed = single});
        range = {range.address + bytes, range.bytes - bytes};
    }
}

/// Returns the bytes of the extents that have no pages.
[[nodiscard]] inline std::size_t bytes_lacking(const Vector<Extent>& extents) noexcept {
    std::size_t bytes = 0;
    for (const Extent& extent : extents) bytes += extent.owns || extent.mapped ? 0 : extent.bytes;
    return bytes;
}

/// Calls `run(range)` for what may come back in any handles, adjacent extents together, and `own(extent)` for an extent
/// that has pages or whose handle is its own; in order.
template <class Run, class Own>
void for_each_run(const Vector<Extent>& extents, const Run& run, const Own& own) {
    Range range;
    for (const Extent& extent : extents) {
        const bool joins = !extent.fixed && !extent.owns && !extent.mapped;
        if (range.bytes != 0 && !(joins && range.end() == extent.address)) run(std::exchange(range, {}));
        if (!joins) {
            own(extent);
        } else {
            range = {range.bytes != 0 ? range.address : extent.address, range.bytes + extent.bytes};
        }
    }
    if (range.bytes != 0) run(range);
}

/// Where the memory of an arena is, and what becomes of it:
///
///     growth                    pause begins                       saved: unmap, release
///     ------------>  active  ----------------->  leaving  ------------------------------>  paused
///                      ^ ^                          |                                       ^  |
///                      | '--------------------------'                  not brought: drained |  | resume: create, map
///                      |   not saved, not idle in time                                      |  v
///                      '------------------------------------------------------------------ arriving
///                                              the last byte is here
///
/// Only active memory serves allocations; if there is none, an allocation makes some. The operation that holds the
/// arena's turn owns the extents of memory that is not active. Pages that the driver would not take back stay in the
/// extents of paused memory, or go to the arena's attic.
struct Memory {
    enum class State : unsigned char { active, leaving, paused, arriving };

    explicit Memory(std::uint64_t& last_serial) noexcept : blocks{last_serial} {}

    [[nodiscard]] std::size_t bytes() const noexcept {
        std::size_t sum = 0;
        for (const Extent& extent : extents) sum += extent.bytes;
        return sum;
    }
    /// Takes over everything that `other` has. Strong exception guarantee: may throw std::bad_alloc.
    void merge(Memory& other) {
        Vector<Extent> both;
        both.reserve(extents.size() + other.extents.size());
        std::merge(extents.begin(), extents.end(), other.extents.begin(), other.extents.end(), std::back_inserter(both),
                   [](const Extent& a, const Extent& b) { return a.address < b.address; });
        blocks.merge(other.blocks); // the last call that may throw
        extents = std::move(both);
        other.extents.clear();
    }

    /// Whether allocations may be served from it, and memory may be added.
    [[nodiscard]] bool serves() const noexcept { return state == State::active && !sealed; }

    State state = State::active;
    bool sealed = false; ///< has extents that are
    BlockAllocator blocks;
    Vector<Extent> extents;        ///< sorted by address
    std::shared_ptr<AnySlot> once; ///< keeps its bytes, if a pause named a policy of its own; null: the tag's slot
};

} // namespace memsaver::inline v0_3::detail
