// Definitions of lz4_codec.hpp.
#pragma once

#include "memsaver/backup/lz4_codec.hpp"
#include "memsaver/core/error.hpp"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

inline Lz4Library Lz4Library::load(const char* file) {
    Lz4Library lz4;
    void* const handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
        const char* const why = ::dlerror();
        lz4.problem = why != nullptr ? why : file;
        return lz4;
    }
    lz4.bound = reinterpret_cast<int (*)(int)>(::dlsym(handle, "LZ4_compressBound"));
    lz4.compress = reinterpret_cast<int (*)(const char*, char*, int, int)>(::dlsym(handle, "LZ4_compress_default"));
    lz4.decompress = reinterpret_cast<int (*)(const char*, char*, int, int)>(::dlsym(handle, "LZ4_decompress_safe"));
    if (lz4.bound == nullptr || lz4.compress == nullptr || lz4.decompress == nullptr)
        lz4.problem = std::string{file} + " lacks LZ4_compressBound, LZ4_compress_default or LZ4_decompress_safe";
    ::dlclose(handle); // RTLD_NODELETE keeps it loaded
    return lz4;
}

inline Lz4Codec::Lz4Codec(AnyDriver driver, const char* file)
    : driver_{std::move(driver)}, lz4_{Lz4Library::load(file)} {
    if (lz4_.problem.empty()) return;
    unavailable({"Compressed on ", driver_.name(), " requires LZ4, which is missing (", lz4_.problem,
                 "): install it (on Debian and Ubuntu: apt-get install liblz4-1)"});
}

inline Status Lz4Codec::measure(std::size_t bytes, std::size_t, Sizes& sizes) const noexcept {
    sizes = {static_cast<std::size_t>(lz4_.bound(static_cast<int>(bytes))), 0};
    return {};
}

inline Status Lz4Codec::encode(const Place& place, std::span<const Range> plain,
                               std::span<Range> coded) const noexcept {
    if (const Status status = pass(driver_, place); !status.ok()) return status;
    for (std::size_t i = 0; i < plain.size(); ++i) {
        // NOLINTBEGIN(performance-no-int-to-ptr): the host can address the device's memory
        const int bytes =
            lz4_.compress(reinterpret_cast<const char*>(plain[i].address), reinterpret_cast<char*>(coded[i].address),
                          static_cast<int>(plain[i].bytes), static_cast<int>(coded[i].bytes));
        // NOLINTEND(performance-no-int-to-ptr)
        coded[i].bytes = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    }
    return {};
}

inline Status Lz4Codec::decode(const Place& place, std::span<const Range> coded,
                               std::span<const Range> plain) const noexcept {
    if (const Status status = pass(driver_, place); !status.ok()) return status;
    for (std::size_t i = 0; i < plain.size(); ++i) {
        // NOLINTBEGIN(performance-no-int-to-ptr): the host can address the device's memory
        const int bytes =
            lz4_.decompress(reinterpret_cast<const char*>(coded[i].address), reinterpret_cast<char*>(plain[i].address),
                            static_cast<int>(coded[i].bytes), static_cast<int>(plain[i].bytes));
        // NOLINTEND(performance-no-int-to-ptr)
        if (bytes < 0 || static_cast<std::size_t>(bytes) != plain[i].bytes)
            return {StatusKind::other, bytes, "LZ4 cannot decompress it"};
    }
    return {};
}

inline Status Lz4Codec::sum(const Place& place, std::span<const Range> chunks,
                            std::span<std::uint32_t> sums) const noexcept {
    if (const Status status = pass(driver_, place); !status.ok()) return status;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): the host can address the device's memory
        sums[i] = crc32(reinterpret_cast<const void*>(chunks[i].address), chunks[i].bytes);
    }
    return {};
}

inline Status Lz4Codec::decode_here(std::span<const std::byte> coded, std::uint32_t sum, std::span<std::byte> plain,
                                    bool& damaged) const noexcept {
    damaged = crc32(coded.data(), coded.size()) != sum;
    if (damaged) return {};
    const int bytes =
        lz4_.decompress(reinterpret_cast<const char*>(coded.data()), reinterpret_cast<char*>(plain.data()),
                        static_cast<int>(coded.size()), static_cast<int>(plain.size()));
    if (bytes >= 0 && static_cast<std::size_t>(bytes) == plain.size()) return {};
    return {StatusKind::other, bytes, "LZ4 cannot decompress it"};
}

/// `of[k][b]`: the contribution of byte b, k bytes before the end of a group of eight. Plain arrays, because they are
/// fast without optimization too.
struct CrcTables {
    std::uint32_t of[8][256]{};
    constexpr CrcTables() noexcept {
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            std::uint32_t value = byte;
            for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? 0xEDB88320U : 0U);
            of[0][byte] = value;
        }
        for (int k = 1; k < 8; ++k) {
            for (int byte = 0; byte < 256; ++byte)
                of[k][byte] = (of[k - 1][byte] >> 8U) ^ of[0][of[k - 1][byte] & 0xFFU];
        }
    }
};

inline std::uint32_t crc32(const void* data, std::size_t bytes) noexcept {
    static constexpr CrcTables tables;
    const auto& of = tables.of;
    const auto* each = static_cast<const unsigned char*>(data);
    std::uint32_t sum = 0xFFFFFFFFU;
    for (; bytes >= 8; bytes -= 8, each += 8) {
        const std::uint32_t low = sum ^ (std::uint32_t{each[0]} | std::uint32_t{each[1]} << 8U |
                                         std::uint32_t{each[2]} << 16U | std::uint32_t{each[3]} << 24U);
        sum = of[7][low & 0xFFU] ^ of[6][(low >> 8U) & 0xFFU] ^ of[5][(low >> 16U) & 0xFFU] ^ of[4][low >> 24U] ^
              of[3][each[4]] ^ of[2][each[5]] ^ of[1][each[6]] ^ of[0][each[7]];
    }
    for (; bytes != 0; --bytes, ++each) sum = (sum >> 8U) ^ of[0][(sum ^ *each) & 0xFFU];
    return ~sum;
}

} // namespace detail

} // namespace memsaver::inline v0_3
