// The addresses of one arena: reserved in segments as they are needed. Knows nothing about pages or blocks.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

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
    Address take(std::size_t bytes, std::size_t alignment);

    /// Adds a segment that begins at the reservation's address and has `bytes`; the rest of the reservation separates
    /// it from the next one, so that nothing ever spans two. Strong exception guarantee: may throw std::bad_alloc.
    void add(Reservation&& reservation, std::size_t bytes);
    /// Removes the segment added last, none of which is in use, and returns its reservation.
    [[nodiscard]] Reservation take_last() noexcept;

    /// Frees a range in use, in one or several pieces. Returns false if host memory is lacking; then nothing changed.
    [[nodiscard]] bool give(Range range) noexcept;

    [[nodiscard]] bool contain(Address address) const noexcept;
    /// Returns the bytes of all segments.
    [[nodiscard]] std::size_t bytes() const noexcept;

    /// Unreserves all segments. Returns the first failure; the next call retries what is left.
    Status close() noexcept;

private:
    struct Segment {
        Reservation reservation;
        Range all;
        std::vector<Range> taken{}; // sorted; adjacent ranges are not merged
    };

    Address take(Segment& segment, std::size_t bytes, std::size_t alignment) const;

    std::size_t gap_;
    std::vector<Segment> segments_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/addresses.ipp"
#endif
