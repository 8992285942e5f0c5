// The addresses of one arena: reserved in segments as they are needed. Knows nothing about pages or blocks.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Returns how many bytes of addresses to reserve next, given that `reserved` bytes are reserved and `needed` are
/// requested: doubling, from 256 MiB to 64 GiB at once.
constexpr std::size_t segment_bytes(std::size_t reserved, std::size_t needed) noexcept {
    return std::max<std::size_t>(needed, std::clamp<std::size_t>(reserved, 256_MiB, 64_GiB));
}

/// Hands out addresses, first fit from the lowest address of each segment, so that ranges in use stay together. With a
/// gap, leaves `gap` bytes free between each range and its neighbors. Not thread-safe.
class Addresses {
public:
    explicit Addresses(std::size_t gap = 0) noexcept : gap_{gap} {}

    /// Takes `bytes` aligned to `alignment` (a power of two) from a segment that has them. Returns their address, or 0.
    /// Strong exception guarantee: may throw std::bad_alloc.
    Address take(std::size_t bytes, std::size_t alignment) {
        for (Segment& segment : segments_) {
            if (const Address address = take(segment, bytes, alignment)) return address;
        }
        return 0;
    }

    /// Adds a segment that begins at the reservation's address and has `bytes`; the rest of the reservation separates
    /// it from the next one, so that nothing ever spans two. Strong exception guarantee: may throw std::bad_alloc.
    void add(Reservation&& reservation, std::size_t bytes) {
        const Range all{reservation.get().address, bytes};
        segments_.push_back({std::move(reservation), all});
    }
    /// Removes the segment added last, none of which is in use, and returns its reservation.
    [[nodiscard]] Reservation take_last() noexcept {
        Reservation last = std::move(segments_.back().reservation);
        segments_.pop_back();
        return last;
    }

    /// Frees a range in use, in one or several pieces. Returns false if host memory is lacking; then nothing changed.
    [[nodiscard]] bool give(Range range) noexcept {
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

    [[nodiscard]] bool contain(Address address) const noexcept {
        return any_in(segments_, [&](const Segment& segment) {
            return address >= segment.all.address && address < segment.all.end();
        });
    }
    /// Returns the bytes of all segments.
    [[nodiscard]] std::size_t bytes() const noexcept {
        std::size_t sum = 0;
        for (const Segment& segment : segments_) sum += segment.all.bytes;
        return sum;
    }

    /// Unreserves all segments. Returns the first failure; the next call retries what is left.
    Status close() noexcept {
        Status first;
        erase_in(segments_, [&](Segment& segment) {
            const Status status = segment.reservation.close();
            if (!status.ok() && status.kind != StatusKind::gone && first.ok()) first = status;
            return status.ok();
        });
        return first;
    }

private:
    struct Segment {
        Reservation reservation;
        Range all;
        std::vector<Range> taken{}; // sorted; adjacent ranges are not merged
    };

    Address take(Segment& segment, std::size_t bytes, std::size_t alignment) const {
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

    std::size_t gap_;
    Vector<Segment> segments_;
};

} // namespace memsaver::inline v0_3::detail
