// Definitions of owned_ranges.hpp.
#pragma once

#include "memsaver/arena/owned_ranges.hpp"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void OwnedRanges::add(Range range, std::size_t step) {
    const std::lock_guard lock{mutex_};
    ranges_.push_back({range, step});
    count_.store(ranges_.size());
}

MEMSAVER_INLINE void OwnedRanges::remove(Range range) noexcept {
    const std::lock_guard lock{mutex_};
    std::erase_if(ranges_, [&](const Owned& owned) { return owned.range == range; });
    count_.store(ranges_.size());
}

MEMSAVER_INLINE bool OwnedRanges::hold(Address address) noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock{mutex_};
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Owned& owned) {
        return owned.range.address <= address && address < owned.range.end();
    });
}

MEMSAVER_INLINE std::vector<Range> OwnedRanges::cut(std::vector<Range> ranges) {
    if (count_.load(std::memory_order_relaxed) == 0) return ranges;
    const std::lock_guard lock{mutex_};
    for (const Owned& owned : ranges_) {
        if (owned.step == 0) continue;
        std::vector<Range> pieces;
        for (Range rest : ranges) {
            while (rest.bytes != 0) {
                Address end = rest.end();
                if (rest.address < owned.range.address) {
                    end = std::min(end, owned.range.address);
                } else if (rest.address < owned.range.end()) {
                    const std::size_t begun = (rest.address - owned.range.address) / owned.step;
                    end = std::min(end, owned.range.address + (begun + 1) * owned.step);
                }
                pieces.push_back({rest.address, end - rest.address});
                rest = {end, rest.end() - end};
            }
        }
        ranges.swap(pieces);
    }
    return ranges;
}

} // namespace detail

} // namespace memsaver::inline v0_3
