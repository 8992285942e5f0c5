// The codec for devices whose memory the host can address: LZ4, loaded at run time, run on the calling thread.
#pragma once

#include "memsaver/backup/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

/// These functions of liblz4, as declared in <lz4.h>; unchanged since LZ4 1.7.3.
struct Lz4Library {
    int (*bound)(int) = nullptr;
    int (*compress)(const char*, char*, int, int) = nullptr;
    int (*decompress)(const char*, char*, int, int) = nullptr;
    std::string problem{}; ///< why it cannot be used; empty if it can

    /// Loads the library for the lifetime of the process.
    static inline Lz4Library load(const char* file = "liblz4.so.1");
};

class Lz4Codec final : public Codec {
public:
    /// Throws Unavailable if liblz4 is missing.
    inline explicit Lz4Codec(AnyDriver driver, const char* file = "liblz4.so.1");

    inline Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept override;
    inline Status encode(const Place& place, std::span<const Range> plain,
                         std::span<Range> coded) const noexcept override;
    inline Status decode(const Place& place, std::span<const Range> coded,
                         std::span<const Range> plain) const noexcept override;
    inline Status sum(const Place& place, std::span<const Range> chunks,
                      std::span<std::uint32_t> sums) const noexcept override;
    inline Status decode_here(std::span<const std::byte> coded, std::uint32_t sum, std::span<std::byte> plain,
                              bool& damaged) const noexcept override;

private:
    AnyDriver driver_;
    Lz4Library lz4_;
};

/// Differs for chunks that differ in one word.
inline std::uint32_t checksum(const void* data, std::size_t bytes) noexcept;

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/backup/lz4_codec.ipp"
