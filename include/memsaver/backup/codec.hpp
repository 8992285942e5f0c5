// What makes chunks of bytes smaller, and whole again, on a device. Does not know where they are kept.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace memsaver::inline v0_2 {

/// What the bytes of a Compressed backup are, for its codec. Whatever they are, they come back as they were.
enum class Coding : unsigned char {
    halves, ///< numbers of two bytes, bf16 or fp16: weights and caches
    bytes,  ///< anything else
};

namespace detail {

/// Lossless, and knows nothing of the bytes but how to code them. Any thread, several calls at once, each with a stream
/// and memory of its own. All chunks and work memory begin at multiples of 256 bytes of device memory, which the driver
/// has mapped; sizes of plain chunks are multiples of 256.
class Codec {
public:
    /// Where a call does its work: `work` holds as many bytes as `measure` said, `mark` is an event to wait with, and
    /// `rows`, if it is not null, is pinned host memory of `row_bytes`.
    struct Place {
        StreamRef stream;
        EventRef mark;
        Range work;
        std::byte* rows = nullptr;
    };
    struct Sizes {
        std::size_t coded = 0; ///< the most that one chunk can become
        std::size_t work = 0;  ///< what each call needs beside its chunks
    };

    Codec() = default;
    Codec(const Codec&) = delete;
    Codec& operator=(const Codec&) = delete;
    virtual ~Codec() = default;

    /// For calls with at most `chunks` chunks of at most `bytes`.
    virtual Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept = 0;
    /// What it would have of pinned host memory, for calls with at most `chunks` chunks; 0: nothing.
    virtual std::size_t row_bytes(std::size_t /*chunks*/) const noexcept { return 0; }

    // In the order of the stream; they wait until they are done. After a failure work may still be under way there.

    /// Codes each chunk to where `coded` says, and sets how many bytes it became: 0 where it did not work out.
    virtual Status encode(const Place& place, std::span<const Range> plain, std::span<Range> coded) const noexcept = 0;
    /// The other way. Never reads or writes outside of the chunks, whatever the bytes.
    virtual Status decode(const Place& place, std::span<const Range> coded,
                          std::span<const Range> plain) const noexcept = 0;
    /// A checksum of each chunk.
    virtual Status sum(const Place& place, std::span<const Range> chunks,
                       std::span<std::uint32_t> sums) const noexcept = 0;

    /// `encode`, and a checksum of each coded chunk; of those that did not work out the sums mean nothing.
    virtual Status encode_and_sum(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                                  std::span<std::uint32_t> sums) const noexcept {
        const Status status = encode(place, plain, coded);
        return status.ok() ? sum(place, coded, sums) : status;
    }
    /// The checksums that the coded chunks have, and, if these are `expected`, `decode`. If not, what the plain chunks
    /// hold then means nothing.
    virtual Status sum_and_decode(const Place& place, std::span<const Range> coded,
                                  std::span<const std::uint32_t> expected, std::span<std::uint32_t> sums,
                                  std::span<const Range> plain) const noexcept {
        const Status status = sum(place, coded, sums);
        const bool damaged = !std::equal(expected.begin(), expected.end(), sums.begin());
        return status.ok() && !damaged ? decode(place, coded, plain) : status;
    }

    /// The same of one chunk in host memory, by the host alone: `sum` is its checksum, `damaged` whether it is wrong.
    /// `unsupported` where only the device can do it.
    virtual Status decode_here(std::span<const std::byte> /*coded*/, std::uint32_t /*sum*/,
                               std::span<std::byte> /*plain*/, bool& /*damaged*/) const noexcept {
        return {StatusKind::unsupported, 0, "only the device decodes it"};
    }
};

/// Waits for what the stream was given so far.
inline Status pass(const AnyDriver& driver, const Codec::Place& place) noexcept {
    const Status status = driver.record(place.mark, place.stream);
    return status.ok() ? driver.wait(place.mark) : status;
}

} // namespace detail

} // namespace memsaver::inline v0_2
