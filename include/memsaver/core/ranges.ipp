// Definitions of ranges.hpp.
#pragma once

#include "memsaver/core/ranges.hpp"

#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE void sort_by_address(std::vector<Range>& ranges) noexcept {
    const auto before = [](const Range& a, const Range& b) {
        return a.address < b.address || (a.address == b.address && a.bytes < b.bytes);
    };
    std::make_heap(ranges.begin(), ranges.end(),
                   before); // half the code of std::sort, which most programs need no more
    std::sort_heap(ranges.begin(), ranges.end(), before);
}

MEMSAVER_INLINE void sort_places(std::size_t count, FunctionRef<std::uint64_t(std::size_t)> key,
                                 FunctionRef<void(std::size_t, std::size_t)> swap) {
    std::vector<Range> places; // for each its key, and the index of the item that belongs there
    places.reserve(count);
    bool sorted = true;
    for (std::size_t i = 0; i < count; ++i) {
        places.push_back({static_cast<Address>(key(i)), i});
        sorted = sorted && (i == 0 || places[i - 1].address <= places[i].address);
    }
    if (sorted) return;
    sort_by_address(places);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t at = i; places[at].bytes != at;) {
            const std::size_t from = std::exchange(places[at].bytes, at);
            if (from == i) break;
            swap(at, from);
            at = from;
        }
    }
}

MEMSAVER_INLINE bool add_once(Vector<const void*>& seen, const void* pointer) {
    const auto place = std::lower_bound(seen.begin(), seen.end(), pointer, std::less<>{});
    if (place != seen.end() && *place == pointer) return false;
    seen.insert(place, pointer);
    return true;
}

MEMSAVER_INLINE std::vector<Range> without(const std::vector<Range>& ranges, const std::vector<Range>& holes) {
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

MEMSAVER_INLINE std::vector<Range> intersection(const std::vector<Range>& ranges, const std::vector<Range>& mask) {
    return without(ranges, without(ranges, mask));
}

MEMSAVER_INLINE bool covers(const std::vector<Range>& ranges, Range range) noexcept {
    auto held = std::upper_bound(ranges.begin(), ranges.end(), range.address,
                                 [](Address a, const Range& each) { return a < each.end(); });
    Address at = range.address;
    for (; at < range.end() && held != ranges.end() && held->address <= at; ++held) at = held->end();
    return at >= range.end();
}

} // namespace memsaver::inline v0_3::detail
