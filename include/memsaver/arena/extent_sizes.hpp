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

/// How many bytes an arena that owns `owned` bytes should take next: from one granule to 32 MiB by doubling, then a
/// sixteenth of what it owns in multiples of 32 MiB, up to the largest extent. So at most a sixteenth of an arena, or
/// 32 MiB, is ahead of the program's needs; neighbours come back behind one handle at the next resume.
constexpr std::size_t growth_step(std::size_t owned, std::size_t granularity) noexcept {
    const std::size_t unit = std::max<std::size_t>(granularity, 32_MiB);
    const std::size_t doubling = std::clamp<std::size_t>(std::bit_floor(owned), granularity, unit);
    const std::size_t part = align_down(owned / 16, unit);
    return std::max(granularity, std::min(std::max(doubling, part), std::max(granularity, largest_extent)));
}

/// Which dead ranges, of `total` bytes that were paused, to leave out at resume. Each cut costs a handle, so of those
/// shorter than 16 MiB only the longest go, until what comes back for nothing is at most a sixty-fourth of the rest.
inline std::vector<Range> worth_cutting(std::vector<Range> dead, std::size_t total) {
    constexpr std::size_t always = 16_MiB;
    std::size_t left = 0;
    for (const Range& range : dead) left += range.bytes;
    const std::size_t alive = total - left;
    std::sort(dead.begin(), dead.end(), [](const Range& a, const Range& b) { return a.bytes > b.bytes; });
    std::size_t cut = 0;
    while (cut < dead.size() && (dead[cut].bytes >= always || left > alive / 64)) left -= dead[cut++].bytes;
    dead.resize(cut);
    return dead;
}

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

/// Whether every byte of `range` lies in `ranges`, which are sorted and without overlap. Needs no memory.
inline bool covers(const std::vector<Range>& ranges, Range range) noexcept {
    auto held = std::upper_bound(ranges.begin(), ranges.end(), range.address,
                                 [](Address a, const Range& each) { return a < each.end(); });
    Address at = range.address;
    for (; at < range.end() && held != ranges.end() && held->address <= at; ++held) at = held->end();
    return at >= range.end();
}

} // namespace memsaver::inline v0_1
