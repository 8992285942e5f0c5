// The program's files as a store to read from.
#pragma once

#include "memsaver/backup/transfer.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

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
    FileFacts look(const std::string& path) {
        OwnedFile file;
        open_cached(file, path);
        return facts_of(file, path);
    }
    /// Opens a file, unless it is open. Throws as `look`, and SourceChanged if the file has changed.
    void open(const std::shared_ptr<const SourceFile>& file) {
        if (any_in(files_, [&](const Open& each) { return each.file == file; })) return;
        Open open{file, {}, {}};
        open_cached(open.cached, file->path);
        if (facts_of(open.cached, file->path) != file->facts) raise_changed(file->path);
        FileFacts facts;
        if (!open.direct.open(driver_, file->path.c_str(), true).ok()) {
            // Reads go through the page cache.
        } else if (!driver_.file_facts(open.direct.get(), facts).ok() || facts != file->facts) {
            (void)open.direct.close();
        }
        files_.push_back(std::move(open));
    }
    /// Call after the last read. Throws SourceChanged if a file has changed since it was opened; each time the same.
    void arrived() override {
        if (!std::exchange(checked_, true)) {
            try {
                for (const Open& open : files_) check_unchanged(open);
            } catch (...) {
                failure_ = std::current_exception();
            }
        }
        if (failure_) std::rethrow_exception(failure_);
    }

    /// Reads a few bytes; opens the file if needed. Throws as `open`, or the exception for a failing read.
    void copy(std::byte* to, const std::shared_ptr<const SourceFile>& file, std::uint64_t offset, std::size_t bytes) {
        open(file);
        const Status status =
            driver_.read_file(open_at(file->first).cached.get(), to, bytes, static_cast<std::size_t>(offset));
        if (!status.ok()) raise(status, "read a file", about(file->path));
    }

    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }
    /// Leaves bytes behind the end of a file unchanged. Throws SourceChanged if the file has changed, or another
    /// failure, naming the file.
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const override {
        const Open& open = open_at(location);
        const auto offset = static_cast<std::size_t>(location - open.file->first);
        bytes = std::min(bytes, static_cast<std::size_t>(open.file->facts.bytes) - offset);
        if (const Status status = read(open, to, bytes, offset); !status.ok()) {
            check_unchanged(open);
            raise(status, "read a file", about(open.file->path));
        }
        return {};
    }

private:
    struct Open {
        std::shared_ptr<const SourceFile> file;
        OwnedFile cached;
        OwnedFile direct; ///< bypasses the page cache, if supported
    };

    /// Every location belongs to one of the files.
    [[nodiscard]] const Open& open_at(std::uint64_t location) const noexcept {
        const Open* found = files_.data();
        for (const Open& each : files_) {
            if (each.file->first <= location &&
                (found->file->first > location || found->file->first < each.file->first))
                found = &each;
        }
        return *found;
    }

    void check_unchanged(const Open& open) const {
        if (facts_of(open.cached, open.file->path) != open.file->facts) raise_changed(open.file->path);
    }
    void open_cached(OwnedFile& file, const std::string& path) const {
        const Status status = file.open(driver_, path.c_str(), false);
        if (!status.ok()) raise(status, "open a file to load from", about(path));
    }
    [[nodiscard]] std::string about(const std::string& path) const { return error_prefix_ + path; }
    [[nodiscard]] FileFacts facts_of(const OwnedFile& file, const std::string& path) const {
        FileFacts facts;
        const Status status = driver_.file_facts(file.get(), facts);
        if (!status.ok()) raise(status, "query a file's properties", about(path));
        return facts;
    }
    [[noreturn]] void raise_changed(const std::string& path) const {
        throw SourceChanged{text_of({error_prefix_, path,
                                     " is no longer the file that bytes were loaded from: it was replaced, "
                                     "modified or truncated"})};
    }
    Status read(const Open& open, std::byte* to, std::size_t bytes, std::size_t offset) const noexcept {
        std::size_t direct = 0; // bytes to read directly: whole pages; the last page of the file may be incomplete
        bool cached = true;
        if (open.direct.owns() && driver_.file_cached(open.cached.get(), bytes, offset, cached).ok() && !cached) {
            direct = align_down(bytes, page);
        }
        if (direct != 0) {
            const Status status = driver_.read_file(open.direct.get(), to, direct, offset);
            if (status.code == EINVAL)
                direct = 0; // the disk needs a larger alignment
            else if (!status.ok())
                return status;
        }
        if (direct == bytes) return {};
        return driver_.read_file(open.cached.get(), to + direct, bytes - direct, offset + direct);
    }

    AnyDriver driver_;
    std::string error_prefix_;
    Vector<Open> files_;
    bool checked_ = false;
    std::exception_ptr failure_; // of the check
};

} // namespace memsaver::inline v0_3::detail
