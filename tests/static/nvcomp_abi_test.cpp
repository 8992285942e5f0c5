// The declarations of backup/nvcomp_codec.hpp agree with nvCOMP's headers, if version 6 is available: constants, the
// layout of structures, and each entry point's arguments.
#if __has_include(<nvcomp/ans.h>) && __has_include(<nvcomp/crc32.h>) && __has_include(<nvcomp/version.h>)
#include <nvcomp/version.h>
#if NVCOMP_VER_MAJOR == 6

#include "memsaver/backup/nvcomp_codec.hpp"

#include <nvcomp/ans.h>
#include <nvcomp/crc32.h>

#include <cstddef>
#include <type_traits>

namespace static_nvcomp_abi_test {

namespace nvcomp = memsaver::detail::nvcomp;
using Library = memsaver::detail::NvcompLibrary;

static_assert(nvcomp::success == nvcompSuccess);
static_assert(nvcomp::rans == nvcomp_rANS);
static_assert(nvcomp::type_char == NVCOMP_TYPE_CHAR);
static_assert(nvcomp::type_float16 == NVCOMP_TYPE_FLOAT16);
static_assert(nvcomp::type_bits == NVCOMP_TYPE_BITS);
static_assert(nvcomp::only_segment == nvcompCRC32OnlySegment);
static_assert(nvcomp::major_of(NVCOMP_VER) == NVCOMP_VER_MAJOR);
static_assert(sizeof(nvcomp::Status) == sizeof(nvcompStatus_t) && std::is_same_v<nvcomp::Stream, cudaStream_t>);
static_assert(sizeof(nvcomp::Properties) == sizeof(nvcompProperties_t));

using Compress = nvcompBatchedANSCompressOpts_t;
static_assert(sizeof(nvcomp::CompressOptions) == sizeof(Compress));
static_assert(offsetof(nvcomp::CompressOptions, data_type) == offsetof(Compress, data_type));
static_assert(offsetof(nvcomp::CompressOptions, reserved) == offsetof(Compress, reserved));

using Decompress = nvcompBatchedANSDecompressOpts_t;
static_assert(sizeof(nvcomp::DecompressOptions) == sizeof(Decompress));
static_assert(offsetof(nvcomp::DecompressOptions, data_type) == offsetof(Decompress, data_type));
static_assert(offsetof(nvcomp::DecompressOptions, reserved) == offsetof(Decompress, reserved));

static_assert(sizeof(nvcomp::Crc32Spec) == sizeof(nvcompCRC32Spec_t));
static_assert(offsetof(nvcomp::Crc32Spec, ref_out) == offsetof(nvcompCRC32Spec_t, ref_out));
static_assert(offsetof(nvcomp::Crc32Spec, xorout) == offsetof(nvcompCRC32Spec_t, xorout));
static_assert(sizeof(nvcomp::Crc32Kernel) == sizeof(nvcompCRC32KernelConf_t));
static_assert(offsetof(nvcomp::Crc32Kernel, blocks_per_msg) == offsetof(nvcompCRC32KernelConf_t, blocks_per_msg));
static_assert(sizeof(nvcomp::Crc32Options) == sizeof(nvcompBatchedCRC32Opts_t));
static_assert(offsetof(nvcomp::Crc32Options, kernel) == offsetof(nvcompBatchedCRC32Opts_t, kernel_conf));

/// The same number of arguments, each of the same size and passed in the same way.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class... Ours, class... Theirs>
struct SameCall<nvcomp::Status (*)(Ours...), nvcompStatus_t (*)(Theirs...)>
    : std::bool_constant<sizeof...(Ours) == sizeof...(Theirs) && ((sizeof(Ours) == sizeof(Theirs)) && ...) &&
                         ((std::is_class_v<Ours> == std::is_class_v<Theirs>)&&...)> {};

static_assert(SameCall<decltype(Library::properties), decltype(&nvcompGetProperties)>::value);
static_assert(SameCall<decltype(Library::compress_temp), decltype(&nvcompBatchedANSCompressGetTempSize)>::value);
static_assert(
    SameCall<decltype(Library::compress_output), decltype(&nvcompBatchedANSCompressGetMaxOutputChunkSize)>::value);
static_assert(SameCall<decltype(Library::compress), decltype(&nvcompBatchedANSCompressAsync)>::value);
static_assert(SameCall<decltype(Library::decompress_temp), decltype(&nvcompBatchedANSDecompressGetTempSize)>::value);
static_assert(SameCall<decltype(Library::decompress), decltype(&nvcompBatchedANSDecompressAsync)>::value);
static_assert(SameCall<decltype(Library::crc32_kernel), decltype(&nvcompBatchedCRC32GetHeuristicConf)>::value);
static_assert(SameCall<decltype(Library::crc32), decltype(&nvcompBatchedCRC32Async)>::value);

} // namespace static_nvcomp_abi_test

#endif
#endif
