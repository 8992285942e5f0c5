// Definitions of memory.hpp.
#pragma once

#include "memsaver/arena/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::vector<Range> worth_cutting(std::vector<Range> dead, std::size_t total) {
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

MEMSAVER_INLINE void split_into_extents(Range range, std::size_t granularity, bool single,
                                        std::vector<Extent>& extents) {
    const std::size_t most = single ? range.bytes : std::max(granularity, largest_extent);
    while (range.bytes != 0) {
        const std::size_t bytes = std::min(range.bytes, most);
        extents.push_back({.address = range.address, .bytes = bytes, .fixed = single});
        range = {range.address + bytes, range.bytes - bytes};
    }
}

MEMSAVER_INLINE std::vector<Range> Memory::ranges() const {
    std::vector<Range> all;
    all.reserve(extents.size());
    for (const Extent& extent : extents) all.push_back(extent.range());
    return all;
}

MEMSAVER_INLINE std::size_t Memory::bytes() const noexcept {
    std::size_t sum = 0;
    for (const Extent& extent : extents) sum += extent.bytes;
    return sum;
}

MEMSAVER_INLINE void Memory::merge(Memory& other) {
    std::vector<Extent> both;
    both.reserve(extents.size() + other.extents.size());
    std::merge(extents.begin(), extents.end(), other.extents.begin(), other.extents.end(), std::back_inserter(both),
               [](const Extent& a, const Extent& b) { return a.address < b.address; });
    blocks.merge(other.blocks); // the last call that may throw
    extents = std::move(both);
    other.extents.clear();
}

} // namespace detail

} // namespace memsaver::inline v0_3
