// The codec for CUDA devices: nvCOMP's ANS, loaded at run time.
#pragma once

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/nvcomp_abi.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// libnvcomp.so.6, for as long as the process lives.
struct NvcompLibrary {
    nvcomp::GetProperties properties = nullptr;
    nvcomp::CompressTempSize compress_temp = nullptr;
    nvcomp::CompressOutputSize compress_output = nullptr;
    nvcomp::Compress compress = nullptr;
    nvcomp::DecompressTempSize decompress_temp = nullptr;
    nvcomp::Decompress decompress = nullptr;
    nvcomp::Crc32Heuristic crc32_kernel = nullptr;
    nvcomp::Crc32 crc32 = nullptr;
    std::string problem{}; ///< why it cannot be used, and what was tried; empty if it can

    /// Looked for, in this order: the file that the environment's MEMSAVER_NVCOMP names, if it is set, and no other;
    /// where the loader looks; the Python package's folder `nvidia/libnvcomp/lib64` in what PYTHONPATH names, then in
    /// the site-packages and dist-packages of VIRTUAL_ENV, of CONDA_PREFIX, of the running program's prefix, and of
    /// /usr/local and /usr.
    static inline NvcompLibrary load();
    /// The files of the last kind that there are.
    static inline std::vector<std::string> in_python_packages();

private:
    inline bool open(const char* file);
};

class NvcompCodec final : public Codec {
public:
    /// Throws Unavailable where there is no nvCOMP 6, and says how to get it.
    inline NvcompCodec(AnyDriver driver, Coding coding);

    inline Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept override;
    inline Status encode(const Place& place, std::span<const Range> plain,
                         std::span<Range> coded) const noexcept override;
    inline Status decode(const Place& place, std::span<const Range> coded,
                         std::span<const Range> plain) const noexcept override;
    inline Status sum(const Place& place, std::span<const Range> chunks,
                      std::span<std::uint32_t> sums) const noexcept override;
    inline std::size_t row_bytes(std::size_t chunks) const noexcept override;
    // One launch after the other, and one wait: each time that the host looks in between, the link stands still.
    inline Status encode_and_sum(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                                 std::span<std::uint32_t> sums) const noexcept override;
    inline Status sum_and_decode(const Place& place, std::span<const Range> coded,
                                 std::span<const std::uint32_t> expected, std::span<std::uint32_t> sums,
                                 std::span<const Range> plain) const noexcept override;

private:
    class Call;

    /// Codes and decodes so many chunks once, so far as there is memory for it, and makes checksums of all the shapes
    /// that come up. The CUDA driver loads kernels when they are first launched, and may wait for the context
    /// meanwhile: not while streams wait for bytes. nvCOMP chooses its kernels by how many chunks there are and how
    /// large.
    inline bool load_kernels(std::size_t chunks) noexcept;
    static constexpr std::size_t most_loaded = 32; ///< chunks: a piece of CodedStore's has so many

    AnyDriver driver_;
    NvcompLibrary nvcomp_;
    bool rows_by_kernel_ = false;
    nvcomp::CompressOptions compress_{};
    nvcomp::DecompressOptions decompress_{};
};

} // namespace detail

} // namespace memsaver::inline v0_2

#include "memsaver/backup/nvcomp_codec.ipp"
