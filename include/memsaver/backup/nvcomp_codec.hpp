// The codec for CUDA devices: nvCOMP's ANS, loaded at run time.
#pragma once

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/nvcomp_abi.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/entry_point.hpp"
#include "memsaver/driver/owned.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// libnvcomp.so.6, loaded for the lifetime of the process.
struct NvcompLibrary {
    using Size = std::size_t;
    using Status = nvcomp::Status;
    using Stream = nvcomp::Stream;
    using ToCompress = nvcomp::CompressOptions;
    using ToDecompress = nvcomp::DecompressOptions;

    void* handle = nullptr;
    bool whole = true; ///< has all entry points

    Status (*properties)(nvcomp::Properties*) = entry("nvcompGetProperties");
    // chunks, bytes of a chunk, ..., bytes in all
    Status (*compress_temp)(Size, Size, ToCompress, Size*, Size, Stream) = entry("nvcompBatchedANSCompressGetTempSize");
    // bytes of a chunk, ...
    Status (*compress_output)(Size, ToCompress, Size*) = entry("nvcompBatchedANSCompressGetMaxOutputChunkSize");
    // plain chunks and their sizes, bytes of the largest, chunks, temporary memory, coded chunks and their sizes, ...
    Status (*compress)(const void* const*, const Size*, Size, Size, void*, Size, void* const*, Size*, ToCompress,
                       Status*, Stream) = entry("nvcompBatchedANSCompressAsync");
    // chunks, bytes of a chunk, ..., bytes in all
    Status (*decompress_temp)(Size, Size, ToDecompress, Size*, Size,
                              Stream) = entry("nvcompBatchedANSDecompressGetTempSize");
    // coded chunks, their sizes, room for each and its size, chunks, temporary memory, plain chunks, ...
    Status (*decompress)(const void* const*, const Size*, const Size*, Size*, Size, void*, Size, void* const*,
                         ToDecompress, Status*, Stream) = entry("nvcompBatchedANSDecompressAsync");
    // sizes, chunks, ..., bytes of the largest
    Status (*crc32_kernel)(const Size*, Size, nvcomp::Crc32Kernel*, Size,
                           Stream) = entry("nvcompBatchedCRC32GetHeuristicConf");
    // chunks and their sizes, their number, sums, ..., segment
    Status (*crc32)(const void* const*, const Size*, Size, std::uint32_t*, nvcomp::Crc32Options, int, Status*,
                    Stream) = entry("nvcompBatchedCRC32Async");

    std::string problem{}; ///< why it cannot be used; empty if it can

    /// Loads the file named by the environment variable MEMSAVER_NVCOMP, or without it what the loader finds.
    static NvcompLibrary load() {
        const char* const named = std::getenv("MEMSAVER_NVCOMP"); // NOLINT(concurrency-mt-unsafe): only read
        const char* const file = named != nullptr && *named != '\0' ? named : "libnvcomp.so.6";
        NvcompLibrary library{::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
        if (library.handle == nullptr) {
            const char* const why = ::dlerror();
            library.problem = why != nullptr ? why : file;
            return library;
        }
        ::dlclose(library.handle); // RTLD_NODELETE keeps it loaded
        nvcomp::Properties its;
        if (!library.whole || library.properties(&its) != nvcomp::success ||
            nvcomp::major_of(its.version) != nvcomp::major_version)
            library.problem = std::string{file} + " is not nvCOMP 6";
        return library;
    }

    EntryPoint entry(const char* name) noexcept {
        const EntryPoint found{handle, name};
        whole = whole && found.address != nullptr;
        return found;
    }
};

class NvcompCodec final : public Codec {
public:
    /// Throws Unavailable, with how to get nvCOMP 6, if it is missing.
    NvcompCodec(AnyDriver driver, Coding coding) : driver_{std::move(driver)}, nvcomp_{NvcompLibrary::load()} {
        if (!nvcomp_.problem.empty()) {
            unavailable({"Compressed on ", driver_.name(), " requires nvCOMP 6, which is missing (", nvcomp_.problem,
                         "): pip install nvidia-libnvcomp-cu13 (or -cu12), and set MEMSAVER_NVCOMP to the path of "
                         "libnvcomp.so.6"});
        }
        compress_.data_type = coding == Coding::halves ? nvcomp::type_float16 : nvcomp::type_char;
        if (!load_kernels(most_loaded)) (void)load_kernels(1);
    }

    Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept override {
        std::size_t coding = 0;
        std::size_t decoding = 0;
        nvcomp::Status status = nvcomp::success;
        const Status ran = driver_.with_context([&] {
            status = nvcomp_.compress_output(bytes, compress_, &sizes.coded);
            if (status == nvcomp::success)
                status = nvcomp_.compress_temp(chunks, bytes, compress_, &coding, chunks * bytes, nullptr);
            if (status == nvcomp::success)
                status = nvcomp_.decompress_temp(chunks, bytes, decompress_, &decoding, chunks * bytes, nullptr);
        });
        if (!ran.ok()) return ran;
        if (status != nvcomp::success) return {StatusKind::other, status, "nvCOMP reports no memory requirement"};
        sizes.work = Call::bytes(chunks) + std::max(coding, decoding);
        return {};
    }
    std::size_t row_bytes(std::size_t chunks) const noexcept override { return Call::bytes(chunks); }
    // These launch both steps and wait once: the link is idle while the host waits between them.
    Status encode(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                  std::span<std::uint32_t> sums) const noexcept override {
        Call call{*this, place, plain.size()};
        call.fill(Call::from, Call::from_bytes, plain);
        call.fill(Call::to, Call::to_bytes, coded);
        for (std::size_t i = 0; call.host(Call::from) != nullptr && i < plain.size(); ++i) {
            call.host(Call::to_bytes)[i] = 0; // a chunk that cannot be coded is summed as empty
        }
        const Status status = call.run([&](nvcomp::Stream stream) {
            const nvcomp::Status encoded = call.encode(Call::largest_of(plain), stream);
            return encoded == nvcomp::success ? call.sum(Call::to, Call::to_bytes, Call::largest_of(coded), stream)
                                              : encoded;
        });
        if (!status.ok()) return status;
        const auto failed = [&](std::size_t i) { return call.status_of(Call::coded_well, i) != nvcomp::success; };
        for (std::size_t i = 0; i < coded.size(); ++i)
            coded[i].bytes = failed(i) ? 0 : static_cast<std::size_t>(call.host(Call::to_bytes)[i]);
        return call.take_sums(sums, failed);
    }
    Status decode(const Place& place, std::span<const Range> coded, std::span<const std::uint32_t> expected,
                  std::span<std::uint32_t> sums, std::span<const Range> plain) const noexcept override {
        Call call{*this, place, plain.size()};
        call.fill(Call::from, Call::from_bytes, coded);
        call.fill(Call::to, Call::to_bytes, plain);
        const Status status = call.run([&](nvcomp::Stream stream) {
            const nvcomp::Status summed = call.sum(Call::from, Call::from_bytes, Call::largest_of(coded), stream);
            return summed == nvcomp::success ? call.decode(stream)
                                             : summed; // stays within its chunks, whatever the bytes
        });
        if (!status.ok()) return status;
        const Status known = call.take_sums(sums, [](std::size_t) { return false; });
        if (!known.ok() || !std::equal(expected.begin(), expected.end(), sums.begin())) return known;
        return call.check_decoded(plain);
    }

private:
    /// The arrays of one call, on the device and on the host. They are copied before and after the call, because
    /// kernels that read them across the link, in pinned memory, were measured to take twice as long.
    class Call {
    public:
        enum Row : unsigned char { from, from_bytes, to, to_bytes, coded_well, result_bytes, sums, summed_well, rows };

        Call(const NvcompCodec& codec, const Place& place, std::size_t chunks) noexcept
            : codec_{codec}, place_{place}, chunks_{chunks} {
            if (place.rows == nullptr) own_.reset(new (std::nothrow) std::byte[bytes(chunks)]);
            host_ = place.rows != nullptr ? place.rows : own_.get();
        }

        static std::size_t bytes(std::size_t chunks) noexcept {
            return align_up(rows * sizeof(std::uint64_t) * chunks, 256);
        }

        /// One number or address per chunk.
        [[nodiscard]] std::uint64_t* host(Row row) const noexcept {
            return reinterpret_cast<std::uint64_t*>(host_) + row * chunks_;
        }
        template <class T>
        [[nodiscard]] T* device(Row row) const noexcept {
            // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address
            return reinterpret_cast<T*>(place_.work.address + row * chunks_ * sizeof(std::uint64_t));
        }
        [[nodiscard]] void* temp() const noexcept {
            return reinterpret_cast<void*>(place_.work.address + bytes(chunks_)); // NOLINT(performance-no-int-to-ptr)
        }
        [[nodiscard]] std::size_t temp_bytes() const noexcept { return place_.work.bytes - bytes(chunks_); }

        void fill(Row addresses, Row sizes, std::span<const Range> chunks) const noexcept {
            for (std::size_t i = 0; host_ != nullptr && i < chunks_; ++i) {
                host(addresses)[i] = chunks[i].address;
                host(sizes)[i] = chunks[i].bytes;
            }
        }

        /// Runs `launch(stream)`, which returns nvCOMP's status, and waits for it. All rows are on the host then.
        template <class Launch>
        Status run(const Launch& launch) noexcept {
            if (host_ == nullptr)
                return {StatusKind::out_of_host_memory, 0, "no host memory for the arrays of a codec"};
            const AnyDriver& driver = codec_.driver_;
            Status status = move(Direction::in);
            if (!status.ok()) return status;
            nvcomp::Status coded = nvcomp::success;
            status = driver.with_context([&] { coded = launch(static_cast<nvcomp::Stream>(place_.stream.native())); });
            if (status.ok() && coded != nvcomp::success)
                status = {StatusKind::other, coded, "nvCOMP could not be launched"};
            if (status.ok()) status = move(Direction::out);
            return status.ok() ? pass(driver, place_) : status;
        }

        nvcomp::Status encode(std::size_t largest, nvcomp::Stream stream) const noexcept {
            return codec_.nvcomp_.compress(device<const void*>(from), device<std::size_t>(from_bytes), largest, chunks_,
                                           temp(), temp_bytes(), device<void*>(to), device<std::size_t>(to_bytes),
                                           codec_.compress_, device<nvcomp::Status>(coded_well), stream);
        }
        nvcomp::Status decode(nvcomp::Stream stream) const noexcept {
            return codec_.nvcomp_.decompress(device<const void*>(from), device<std::size_t>(from_bytes),
                                             device<std::size_t>(to_bytes), device<std::size_t>(result_bytes), chunks_,
                                             temp(), temp_bytes(), device<void*>(to), codec_.decompress_,
                                             device<nvcomp::Status>(coded_well), stream);
        }
        nvcomp::Status sum(Row addresses, Row sizes, std::size_t largest, nvcomp::Stream stream) const noexcept {
            nvcomp::Crc32Options options;
            const nvcomp::Status known =
                codec_.nvcomp_.crc32_kernel(nullptr, chunks_, &options.kernel, largest, stream);
            if (known != nvcomp::success) return known;
            return codec_.nvcomp_.crc32(device<const void*>(addresses), device<std::size_t>(sizes), chunks_,
                                        device<std::uint32_t>(sums), options, nvcomp::only_segment,
                                        device<nvcomp::Status>(summed_well), stream);
        }

        [[nodiscard]] nvcomp::Status status_of(Row row, std::size_t i) const noexcept {
            return reinterpret_cast<const nvcomp::Status*>(host(row))[i];
        }
        /// Copies the checksums, except where `skip(i)`.
        template <class Skip>
        Status take_sums(std::span<std::uint32_t> to_here, const Skip& skip) const noexcept {
            for (std::size_t i = 0; i < chunks_; ++i) {
                if (skip(i)) continue;
                if (status_of(summed_well, i) != nvcomp::success)
                    return {StatusKind::other, status_of(summed_well, i), "nvCOMP could not compute a checksum"};
                to_here[i] = reinterpret_cast<const std::uint32_t*>(host(sums))[i];
            }
            return {};
        }
        Status check_decoded(std::span<const Range> plain) const noexcept {
            for (std::size_t i = 0; i < chunks_; ++i) {
                if (status_of(coded_well, i) != nvcomp::success || host(result_bytes)[i] != plain[i].bytes)
                    return {StatusKind::other, status_of(coded_well, i), "nvCOMP cannot decompress it"};
            }
            return {};
        }

        static std::size_t largest_of(std::span<const Range> chunks) noexcept {
            std::size_t largest = 0;
            for (const Range& chunk : chunks) largest = std::max(largest, chunk.bytes);
            return largest;
        }

    private:
        /// Copies all rows to or from the device, by a kernel if possible: a copy engine would first finish the copies
        /// that other workers have enqueued, a piece for each of them.
        Status move(Direction direction) const noexcept {
            const AnyDriver& driver = codec_.driver_;
            CopyPart part{place_.work.address, reinterpret_cast<Address>(host_), bytes(chunks_)};
            if (direction == Direction::out) std::swap(part.to, part.from);
            if (place_.rows != nullptr && codec_.rows_by_kernel_) {
                const Status status = driver.copy_by_kernel(part.to, part.from, part.bytes, place_.stream);
                if (status.kind != StatusKind::unsupported) return status;
            }
            return copy(driver, direction, part, place_.stream);
        }

        const NvcompCodec& codec_;
        const Place& place_;
        std::size_t chunks_;
        std::unique_ptr<std::byte[]> own_;
        std::byte* host_ = nullptr;
    };

    Status sum(const Place& place, std::span<const Range> chunks, std::span<std::uint32_t> sums) const noexcept {
        Call call{*this, place, chunks.size()};
        call.fill(Call::from, Call::from_bytes, chunks);
        const Status status = call.run([&](nvcomp::Stream stream) {
            return call.sum(Call::from, Call::from_bytes, Call::largest_of(chunks), stream);
        });
        return status.ok() ? call.take_sums(sums, [](std::size_t) { return false; }) : status;
    }

    /// Loads the kernels by using them: encodes and decodes `chunks` chunks, if the device has the memory, and computes
    /// checksums for typical counts and sizes. The CUDA driver loads a kernel at its first launch and may then wait for
    /// the context, which must not happen while streams wait for bytes. nvCOMP chooses its kernels by the number and
    /// the size of the chunks. Returns false without enough memory or a stream.
    bool load_kernels(std::size_t chunks) noexcept {
        constexpr std::size_t chunk = 1_MiB;
        constexpr std::size_t most = 192; // chunks in one checksum call
        Sizes sizes;
        if (!measure(chunk, chunks, sizes).ok()) return false;
        const std::size_t room = align_up(sizes.coded, 256);
        const std::size_t work = std::max(sizes.work, row_bytes(most));
        std::array<Range, most_loaded> plain;
        std::array<Range, most_loaded> coded;
        std::array<std::uint32_t, most_loaded> found{};
        std::array<Range, most> same;
        std::array<std::uint32_t, most> sums{};
        rows_by_kernel_ = driver_.copy_by_kernel(0, 0, 0, {}).ok(); // loads this kernel too
        OwnedStream stream;
        OwnedEvent mark;
        if (!stream.open(driver_).ok() || !mark.open(driver_, stream.get()).ok()) return false;
        Address memory = 0;
        if (!driver_.allocate_plain(chunks * (chunk + room) + work, memory).ok()) return false;
        const Place place{stream.get(), mark.get(), {memory + chunks * (chunk + room), work}};
        for (std::size_t i = 0; i < chunks; ++i) {
            plain[i] = {memory + i * chunk, chunk};
            coded[i] = {memory + chunks * chunk + i * room, sizes.coded};
        }
        Status status = driver_.fill(memory, 1, chunks * chunk, stream.get());
        if (status.ok()) status = encode(place, {plain.data(), chunks}, {coded.data(), chunks}, {sums.data(), chunks});
        if (status.ok())
            status = decode(place, {coded.data(), chunks}, {sums.data(), chunks}, {found.data(), chunks},
                            {plain.data(), chunks});
        for (const std::size_t count : {std::size_t{1}, std::size_t{8}, std::size_t{32}, most}) {
            for (const std::size_t bytes : {std::size_t{4096}, chunk / 16, chunk / 3 * 2, chunk}) {
                std::fill_n(same.begin(), count, Range{memory, bytes});
                if (status.ok()) status = sum(place, {same.data(), count}, {sums.data(), count});
            }
        }
        (void)driver_.free_plain(memory); // waits for the device
        return true;
    }
    static constexpr std::size_t most_loaded = 32; ///< chunks in a piece of CodedStore

    AnyDriver driver_;
    NvcompLibrary nvcomp_;
    bool rows_by_kernel_ = false;
    nvcomp::CompressOptions compress_{};
    nvcomp::DecompressOptions decompress_{};
};

} // namespace memsaver::inline v0_3::detail
