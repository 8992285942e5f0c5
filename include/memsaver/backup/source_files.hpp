// The program's files as a store to read from.
#pragma once

#include "memsaver/backup/transfer.hpp"
#include "memsaver/driver/owned.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A file as it was when bytes were loaded from it.
struct SourceFile {
    /// Locations of files begin at multiples of this, so that no piece has bytes of two files.
    static constexpr std::uint64_t spacing = 1_GiB;

    std::string path;
    FileFacts facts{};
    std::uint64_t first = 0; ///< location of its first byte; never 0
};

/// The files that one transfer has open. Only one thread may open files; any thread may read.
class SourceReader final : public ByteStore {
public:
    static constexpr std::size_t page = 4096;

    /// `whose` is for error messages.
    SourceReader(AnyDriver driver, std::string whose) : driver_{std::move(driver)}, error_prefix_{std::move(whose)} {}

    /// Returns the current facts of the file. Throws the exception for a failing call, with the path in its message.
    FileFacts look(const std::string& path);
    /// Opens a file, unless it is open. Throws as `look`, and SourceChanged if the file has changed.
    void open(const std::shared_ptr<const SourceFile>& file);
    /// Call after the last read. Throws SourceChanged if a file has changed since it was opened, or the first failure
    /// of a read, naming its file.
    void check_read() const;

    /// Reads a few bytes; opens the file if needed. Throws as `open`, or the exception for a failing read.
    void copy(std::byte* to, const std::shared_ptr<const SourceFile>& file, std::uint64_t offset, std::size_t bytes);

    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    /// Leaves bytes behind the end of a file unchanged.
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    struct Open {
        std::shared_ptr<const SourceFile> file;
        OwnedFile cached;
        OwnedFile direct; ///< bypasses the page cache, if supported
    };

    [[nodiscard]] std::vector<Open>::iterator place_of(const SourceFile& file);
    void open_cached(OwnedFile& file, const std::string& path) const;
    [[nodiscard]] std::string about(const std::string& path) const { return error_prefix_ + path; }
    [[nodiscard]] FileFacts facts_of(const OwnedFile& file, const std::string& path) const;
    [[noreturn]] void raise_changed(const std::string& path) const;
    Status read(const Open& open, std::byte* to, std::size_t bytes, std::size_t offset) const noexcept;

    AnyDriver driver_;
    std::string error_prefix_;
    std::vector<Open> files_; // by `first`
    mutable std::mutex mutex_;
    mutable const Open* failed_ = nullptr; // the first whose read failed
    mutable Status failure_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_files.ipp"
#endif
