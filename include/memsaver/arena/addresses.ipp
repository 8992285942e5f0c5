// Definitions of addresses.hpp.
#pragma once

#include "memsaver/arena/addresses.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Address Addresses::take(std::size_t bytes, std::size_t alignment) {
    for (Segment& segment : segments_) {
        if (const Address address = take(segment, bytes, alignment)) return address;
    }
    return 0;
}

MEMSAVER_INLINE Address Addresses::take(Segment& segment, std::size_t bytes, std::size_t alignment) const {
    std::vector<Range>& taken = segment.taken;
    Address at = align_up(segment.all.address, alignment);
    std::size_t next = 0;
    for (; next < taken.size(); ++next) {
        if (at <= taken[next].address && taken[next].address - at >= bytes + gap_) break;
        if (taken[next].end() + gap_ > at) at = align_up(taken[next].end() + gap_, alignment);
    }
    if (at > segment.all.end() || segment.all.end() - at < bytes) return 0;
    taken.insert(taken.begin() + static_cast<std::ptrdiff_t>(next), {at, bytes});
    return at;
}

MEMSAVER_INLINE void Addresses::add(Reservation&& reservation, std::size_t bytes) {
    const Range all{reservation.get().address, bytes};
    segments_.push_back({std::move(reservation), all});
}

MEMSAVER_INLINE Reservation Addresses::take_last() noexcept {
    Reservation last = std::move(segments_.back().reservation);
    segments_.pop_back();
    return last;
}

MEMSAVER_INLINE bool Addresses::give(Range range) noexcept {
    for (Segment& segment : segments_) {
        if (!overlap(segment.all, range)) continue;
        std::vector<Range>& taken = segment.taken;
        try {
            taken.reserve(taken.size() + 1); // a range in use may be split in two
        } catch (const std::bad_alloc&) {
            return false;
        }
        std::size_t i = 0;
        while (i < taken.size() && taken[i].end() <= range.address) ++i;
        while (i < taken.size() && taken[i].address < range.end()) {
            const Range piece = taken[i];
            const auto at = taken.begin() + static_cast<std::ptrdiff_t>(i);
            if (piece.address < range.address && piece.end() > range.end()) {
                taken[i].bytes = range.address - piece.address;
                taken.insert(at + 1, {range.end(), piece.end() - range.end()});
                break;
            }
            if (piece.address < range.address) {
                taken[i++].bytes = range.address - piece.address;
            } else if (piece.end() > range.end()) {
                taken[i] = {range.end(), piece.end() - range.end()};
                break;
            } else {
                taken.erase(at);
            }
        }
        return true;
    }
    return true; // closed meanwhile
}

MEMSAVER_INLINE bool Addresses::contain(Address address) const noexcept {
    return any_in(segments_, [&](const Segment& segment) {
        return address >= segment.all.address && address < segment.all.end();
    });
}

MEMSAVER_INLINE std::size_t Addresses::bytes() const noexcept {
    std::size_t sum = 0;
    for (const Segment& segment : segments_) sum += segment.all.bytes;
    return sum;
}

MEMSAVER_INLINE Status Addresses::close() noexcept {
    Status first;
    erase_in(segments_, [&](Segment& segment) {
        const Status status = segment.reservation.close();
        if (!status.ok() && status.kind != StatusKind::gone && first.ok()) first = status;
        return status.ok();
    });
    return first;
}

} // namespace detail

} // namespace memsaver::inline v0_3
