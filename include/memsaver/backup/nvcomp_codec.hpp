// The codec for CUDA devices: nvCOMP's ANS, loaded at run time.
#pragma once

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/nvcomp_abi.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

/// libnvcomp.so.6, loaded for the lifetime of the process.
struct NvcompLibrary {
    nvcomp::GetProperties properties = nullptr;
    nvcomp::CompressTempSize compress_temp = nullptr;
    nvcomp::CompressOutputSize compress_output = nullptr;
    nvcomp::Compress compress = nullptr;
    nvcomp::DecompressTempSize decompress_temp = nullptr;
    nvcomp::Decompress decompress = nullptr;
    nvcomp::Crc32Heuristic crc32_kernel = nullptr;
    nvcomp::Crc32 crc32 = nullptr;
    std::string problem{}; ///< why it cannot be used; empty if it can

    /// Loads the file named by the environment variable MEMSAVER_NVCOMP, or without it what the loader finds.
    static inline NvcompLibrary load();

private:
    inline void open(const char* file);
};

class NvcompCodec final : public Codec {
public:
    /// Throws Unavailable, with how to get nvCOMP 6, if it is missing.
    inline NvcompCodec(AnyDriver driver, Coding coding);

    inline Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept override;
    inline std::size_t row_bytes(std::size_t chunks) const noexcept override;
    // These launch both steps and wait once: the link is idle while the host waits between them.
    inline Status encode(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                         std::span<std::uint32_t> sums) const noexcept override;
    inline Status decode(const Place& place, std::span<const Range> coded, std::span<const std::uint32_t> expected,
                         std::span<std::uint32_t> sums, std::span<const Range> plain) const noexcept override;

private:
    class Call;

    inline Status sum(const Place& place, std::span<const Range> chunks, std::span<std::uint32_t> sums) const noexcept;

    /// Loads the kernels by using them: encodes and decodes `chunks` chunks, if the device has the memory, and computes
    /// checksums for typical counts and sizes. The CUDA driver loads a kernel at its first launch and may then wait for
    /// the context, which must not happen while streams wait for bytes. nvCOMP chooses its kernels by the number and
    /// the size of the chunks. Returns false without enough memory or a stream.
    inline bool load_kernels(std::size_t chunks) noexcept;
    static constexpr std::size_t most_loaded = 32; ///< chunks in a piece of CodedStore

    AnyDriver driver_;
    NvcompLibrary nvcomp_;
    bool rows_by_kernel_ = false;
    nvcomp::CompressOptions compress_{};
    nvcomp::DecompressOptions decompress_{};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/backup/nvcomp_codec.ipp"
