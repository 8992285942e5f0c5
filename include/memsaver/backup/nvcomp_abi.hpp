// The parts of nvCOMP 6's binary interface that memsaver uses: a few constants and structures, declared here so that
// its headers are not needed. tests/static/nvcomp_abi_test.cpp checks them against the headers where these are
// installed.
#pragma once

#include "memsaver/core/handles.hpp"

#include <cstdint>

namespace memsaver::inline v0_3::detail::nvcomp {

using Status = int;
using Stream = CUstream_st*;

// nvcompStatus_t, nvcompANSType_t, nvcompType_t, nvcompCRC32SegmentKind_t
inline constexpr Status success = 0;
inline constexpr int rans = 0;
inline constexpr int type_char = 0;
inline constexpr int type_float16 = 10;
inline constexpr int type_bits = 0xff;
inline constexpr int only_segment = 0;

inline constexpr unsigned major_version = 6;
/// nvCOMP's version numbers: 6.0.1 is 6001, 6.1.0 is 6100.
constexpr unsigned major_of(std::uint32_t version) noexcept { return version / 1000; }

struct Properties {
    std::uint32_t version = 0;
    std::uint32_t cudart_version = 0;
};

struct CompressOptions {
    int type = rans;
    int data_type = type_char;
    std::uint8_t max_sub_chunk_count = 0;
    std::uint8_t states_per_lane = 0;
    std::uint8_t histogram_reduction_log2 = 0;
    char reserved[53] = {};
};

struct DecompressOptions {
    int backend = 0;
    int data_type = type_bits; ///< taken from the coded data
    std::uint8_t max_sub_chunk_count = 0;
    std::uint8_t states_per_lane = 0;
    std::uint8_t skip_validate = 0;
    char reserved[53] = {};
};

struct Crc32Spec {
    std::uint32_t poly = 0x04C11DB7;
    std::uint32_t init = 0xFFFFFFFF;
    bool ref_in = true;
    bool ref_out = true;
    std::uint32_t xorout = 0xFFFFFFFF;
    char reserved[16] = {};
};

struct Crc32Kernel {
    int kind = 0;
    std::int32_t bytes_per_read = 0;
    std::int32_t blocks_per_msg = 0;
    char reserved[20] = {};
};

struct Crc32Options {
    Crc32Spec spec{};
    Crc32Kernel kernel{};
    char reserved[64] = {};
};

} // namespace memsaver::inline v0_3::detail::nvcomp
