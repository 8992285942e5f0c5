// Definitions of arena_base.hpp.
#pragma once

#include "memsaver/arena/arena_base.hpp"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void ArenaTotals::note(const TagReport& row) noexcept {
    const std::lock_guard lock{mutex_};
    if (row.mapped_bytes != 0) sums_.resumes += 1;
    if (row.mapped_bytes == 0) sums_.released_total_bytes += row.released_bytes;
    sums_.saved_total_bytes += row.saved_bytes;
    sums_.restored_total_bytes += row.restored_bytes;
}

MEMSAVER_INLINE void ArenaTotals::saved_ahead(std::size_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    sums_.saved_total_bytes += bytes;
}

MEMSAVER_INLINE void ArenaTotals::mapped(std::size_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    sums_.peak_mapped_bytes = std::max(sums_.peak_mapped_bytes, bytes);
}

MEMSAVER_INLINE void ArenaTotals::fill(ArenaUsage& row) noexcept {
    mapped(row.mapped_bytes);
    const std::lock_guard lock{mutex_};
    row.peak_mapped_bytes = sums_.peak_mapped_bytes;
    row.resumes = sums_.resumes;
    row.released_total_bytes = sums_.released_total_bytes;
    row.saved_total_bytes = sums_.saved_total_bytes;
    row.restored_total_bytes = sums_.restored_total_bytes;
}

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
