// Codecs that compress and decompress chunks of bytes on a device. They know nothing about where the bytes are kept.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace memsaver::inline v0_3 {

/// The kind of bytes in a Compressed backup, as a hint for its codec. Any bytes are restored exactly.
enum class Coding : unsigned char {
    halves, ///< two-byte numbers, bf16 or fp16: weights and caches
    bytes,  ///< anything else
};

namespace detail {

/// A lossless codec. Thread-safe: several calls may run at once, each with its own stream and memory. All chunks and
/// work memory are mapped device memory aligned to 256 bytes. The sizes of plain chunks are multiples of 256 bytes.
class Codec {
public:
    /// Where a call runs. `work` has at least the size that `measure` returned, `mark` is an event for waiting, and
    /// `rows`, if not null, is pinned host memory of `row_bytes` bytes.
    struct Place {
        StreamRef stream;
        EventRef mark;
        Range work;
        std::byte* rows = nullptr;
    };
    struct Sizes {
        std::size_t coded = 0; ///< largest size of a coded chunk, in bytes
        std::size_t work = 0;  ///< work memory of a call in addition to its chunks, in bytes
    };

    Codec& operator=(Codec&&) = delete;
    virtual ~Codec() = default;

    /// Computes the sizes for calls with at most `chunks` chunks of at most `bytes` bytes.
    virtual Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept = 0;
    /// Returns the pinned host memory, in bytes, that calls with at most `chunks` chunks can use; 0 if none.
    virtual std::size_t row_bytes(std::size_t /*chunks*/) const noexcept { return 0; }

    // These run in stream order and return when they are done. After a failure, work may still be in flight on the
    // stream.

    /// Codes each chunk to the address in `coded`. Sets the coded size there, or 0 if the chunk could not be coded, and
    /// `sums` to checksums of the coded chunks; those of chunks that could not be coded are undefined.
    virtual Status encode(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                          std::span<std::uint32_t> sums) const noexcept = 0;
    /// Computes the checksums of the coded chunks and, if they equal `expected`, decodes. If they differ, the contents
    /// of the plain chunks are undefined. Never reads or writes outside the chunks, whatever the bytes are.
    virtual Status decode(const Place& place, std::span<const Range> coded, std::span<const std::uint32_t> expected,
                          std::span<std::uint32_t> sums, std::span<const Range> plain) const noexcept = 0;

    /// Verifies and decodes one chunk in host memory without the device. `sum` is the expected checksum; `damaged` is
    /// set if it does not match. Returns `unsupported` if only the device can decode.
    virtual Status decode_here(std::span<const std::byte> /*coded*/, std::uint32_t /*sum*/,
                               std::span<std::byte> /*plain*/, bool& /*damaged*/) const noexcept {
        return {StatusKind::unsupported, 0, "only the device can decompress it"};
    }
};

/// Waits for all work submitted to the stream so far.
inline Status pass(const AnyDriver& driver, const Codec::Place& place) noexcept {
    const Status status = driver.record(place.mark, place.stream);
    return status.ok() ? driver.wait(place.mark) : status;
}

} // namespace detail

} // namespace memsaver::inline v0_3
