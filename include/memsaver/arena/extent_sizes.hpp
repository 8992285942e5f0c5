// How large the extents of an arena are. Pure arithmetic; the measurements behind it are in docs/decisions.
#pragma once

#include "memsaver/base/sizes.hpp"
#include "memsaver/transfer/range.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace memsaver::inline v0_1 {

/// A handle costs the driver about as much whatever its size, up to about this one; larger ones gain nothing.
inline constexpr std::size_t largest_extent = 1_GiB;

/// How many bytes an arena that owns `owned` bytes should take next: powers of two, from one granule to 32 MiB by
/// doubling, then a quarter of what it owns, up to the largest extent. So at most a quarter of an arena, or 32 MiB, is
/// ahead of the program's needs.
constexpr std::size_t growth_step(std::size_t owned, std::size_t granularity) noexcept {
    const std::size_t doubling =
        std::clamp<std::size_t>(std::bit_floor(owned), granularity, std::max<std::size_t>(granularity, 32_MiB));
    const std::size_t quarter = std::bit_floor(owned / 4);
    return std::max(granularity, std::min(std::max(doubling, quarter), std::max(granularity, largest_extent)));
}

/// A dead range shorter than this is not cut out at resume, so that cycles do not leave ever more small extents.
inline constexpr std::size_t shortest_cut = 16_MiB;

/// `range` in pieces for one handle each: as few as can be.
inline void split_into_extents(Range range, std::size_t granularity, std::vector<Range>& pieces) {
    const std::size_t most = std::max(granularity, largest_extent);
    while (range.bytes != 0) {
        const std::size_t bytes = std::min(range.bytes, most);
        pieces.push_back({range.address, bytes});
        range = {range.address + bytes, range.bytes - bytes};
    }
}

inline void sort_by_address(std::vector<Range>& ranges) noexcept {
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.address < b.address; });
}

/// What is left of `ranges` without `holes`; both sorted and without overlap. Neighbours are joined.
inline std::vector<Range> without(const std::vector<Range>& ranges, const std::vector<Range>& holes) {
    std::vector<Range> left;
    const auto keep = [&](Address begin, Address end) {
        if (begin >= end) return;
        if (!left.empty() && left.back().end() == begin) {
            left.back().bytes += end - begin;
        } else {
            left.push_back({begin, end - begin});
        }
    };
    std::size_t first = 0;
    for (const Range& range : ranges) {
        Address at = range.address;
        while (first < holes.size() && holes[first].end() <= at) ++first;
        for (std::size_t i = first; i < holes.size() && holes[i].address < range.end(); ++i) {
            keep(at, std::max(at, holes[i].address));
            at = std::max(at, std::min(range.end(), holes[i].end()));
        }
        keep(at, range.end());
    }
    return left;
}

/// The parts of `ranges` that lie in `mask`; both sorted and without overlap.
inline std::vector<Range> intersection(const std::vector<Range>& ranges, const std::vector<Range>& mask) {
    return without(ranges, without(ranges, mask));
}

} // namespace memsaver::inline v0_1
