// Definitions of lz4_codec.hpp.
#pragma once

#include "memsaver/backup/lz4_codec.hpp"
#include "memsaver/core/error.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
        sums[i] = checksum(reinterpret_cast<const void*>(chunks[i].address), chunks[i].bytes);
    }
    return {};
}

inline Status Lz4Codec::decode_here(std::span<const std::byte> coded, std::uint32_t sum, std::span<std::byte> plain,
                                    bool& damaged) const noexcept {
    damaged = checksum(coded.data(), coded.size()) != sum;
    if (damaged) return {};
    const int bytes =
        lz4_.decompress(reinterpret_cast<const char*>(coded.data()), reinterpret_cast<char*>(plain.data()),
                        static_cast<int>(coded.size()), static_cast<int>(plain.size()));
    if (bytes >= 0 && static_cast<std::size_t>(bytes) == plain.size()) return {};
    return {StatusKind::other, bytes, "LZ4 cannot decompress it"};
}

inline std::uint32_t checksum(const void* data, std::size_t bytes) noexcept {
    std::uint64_t sum = bytes;
    const auto* at = static_cast<const unsigned char*>(data);
    for (std::size_t step = 8; bytes != 0; bytes -= step, at += step) {
        std::uint64_t word = 0;
        step = std::min<std::size_t>(step, bytes);
        std::memcpy(&word, at, step);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15U;
        sum ^= sum >> 32U;
    }
    return static_cast<std::uint32_t>(sum);
}

} // namespace detail

} // namespace memsaver::inline v0_3
