// The program's files as a store to read from.
#pragma once

#include "memsaver/backup/transfer.hpp"
#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A file as it was when bytes were loaded from it.
struct SourceFile {
    /// Locations of files begin at multiples of this, so that no piece has bytes of two files.
    static constexpr std::uint64_t spacing = 1_GiB;
    /// Locations from here on are those of files; others are host addresses.
    static constexpr std::uint64_t least_location = std::uint64_t{1} << 63U;
    static constexpr bool holds(std::uint64_t location) noexcept { return location >= least_location; }

    std::string path;
    FileFacts facts{};
    std::uint64_t first = 0; ///< location of its first byte
};

/// The files that one transfer has open. Only one thread may open files; any thread may read.
class SourceReader final : public ByteStore, public Transfer::Companion {
public:
    static constexpr std::size_t page = 4096;

    /// `whose` is for error messages.
    SourceReader(AnyDriver driver, std::string whose) : driver_{std::move(driver)}, error_prefix_{std::move(whose)} {}

    /// Returns the current facts of the file. Throws the exception for a failing call, with the path in its message.
    FileFacts look(const std::string& path);
    /// Opens a file, unless it is open. Throws as `look`, and SourceChanged if the file has changed.
    void open(const std::shared_ptr<const SourceFile>& file);
    /// Call after the last read. Throws SourceChanged if a file has changed since it was opened; each time the same.
    MEMSAVER_INLINE void arrived() override;

    /// Reads a few bytes; opens the file if needed. Throws as `open`, or the exception for a failing read.
    void copy(std::byte* to, const std::shared_ptr<const SourceFile>& file, std::uint64_t offset, std::size_t bytes);

    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }
    /// Leaves bytes behind the end of a file unchanged.
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;
    /// Throws SourceChanged if the file has changed, or the failure, naming the file.
    MEMSAVER_INLINE void explain(const Status& failure, std::uint64_t location) const override;

private:
    struct Open {
        std::shared_ptr<const SourceFile> file;
        OwnedFile cached;
        OwnedFile direct; ///< bypasses the page cache, if supported
    };

    [[nodiscard]] std::vector<Open>::iterator place_of(const SourceFile& file);
    [[nodiscard]] const Open& open_at(std::uint64_t location) const noexcept;
    void check_unchanged(const Open& open) const;
    void open_cached(OwnedFile& file, const std::string& path) const;
    [[nodiscard]] std::string about(const std::string& path) const { return error_prefix_ + path; }
    [[nodiscard]] FileFacts facts_of(const OwnedFile& file, const std::string& path) const;
    [[noreturn]] void raise_changed(const std::string& path) const;
    Status read(const Open& open, std::byte* to, std::size_t bytes, std::size_t offset) const noexcept;

    AnyDriver driver_;
    std::string error_prefix_;
    std::vector<Open> files_; // by `first`
    bool checked_ = false;
    std::exception_ptr failure_; // of the check
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_files.ipp"
#endif
