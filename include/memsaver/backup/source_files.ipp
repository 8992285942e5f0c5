// Definitions of source_files.hpp.
#pragma once

#include "memsaver/backup/source_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE FileFacts SourceReader::look(const std::string& path) {
    OwnedFile file;
    open_cached(file, path);
    return facts_of(file, path);
}

MEMSAVER_INLINE std::vector<SourceReader::Open>::iterator SourceReader::place_of(const SourceFile& file) {
    return std::lower_bound(files_.begin(), files_.end(), file.first,
                            [](const Open& open, std::uint64_t first) { return open.file->first < first; });
}

MEMSAVER_INLINE void SourceReader::copy(std::byte* to, const std::shared_ptr<const SourceFile>& file,
                                        std::uint64_t offset, std::size_t bytes) {
    open(file);
    const Status status = driver_.read_file(place_of(*file)->cached.get(), to, bytes, static_cast<std::size_t>(offset));
    if (!status.ok()) raise(status, "read a file", about(file->path));
}

MEMSAVER_INLINE void SourceReader::open(const std::shared_ptr<const SourceFile>& file) {
    const auto place = place_of(*file);
    if (place != files_.end() && place->file == file) return;
    Open open{file, {}, {}};
    open_cached(open.cached, file->path);
    if (facts_of(open.cached, file->path) != file->facts) raise_changed(file->path);
    FileFacts facts;
    if (!open.direct.open(driver_, file->path.c_str(), true).ok()) {
        // Reads go through the page cache.
    } else if (!driver_.file_facts(open.direct.get(), facts).ok() || facts != file->facts) {
        (void)open.direct.close();
    }
    files_.insert(place, std::move(open));
}

MEMSAVER_INLINE void SourceReader::check_unchanged(const Open& open) const {
    if (facts_of(open.cached, open.file->path) != open.file->facts) raise_changed(open.file->path);
}

MEMSAVER_INLINE void SourceReader::arrived() {
    if (!std::exchange(checked_, true)) {
        try {
            for (const Open& open : files_) check_unchanged(open);
        } catch (...) {
            failure_ = std::current_exception();
        }
    }
    if (failure_) std::rethrow_exception(failure_);
}

MEMSAVER_INLINE void SourceReader::explain(const Status& failure, std::uint64_t location) const {
    const Open& open = open_at(location);
    check_unchanged(open);
    raise(failure, "read a file", about(open.file->path));
}

MEMSAVER_INLINE const SourceReader::Open& SourceReader::open_at(std::uint64_t location) const noexcept {
    const auto after = std::upper_bound(files_.begin(), files_.end(), location,
                                        [](std::uint64_t at, const Open& each) { return at < each.file->first; });
    return *std::prev(after); // every location belongs to one of them
}

MEMSAVER_INLINE Status SourceReader::get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
    const Open& open = open_at(location);
    const auto offset = static_cast<std::size_t>(location - open.file->first);
    return read(open, to, std::min(bytes, static_cast<std::size_t>(open.file->facts.bytes) - offset), offset);
}

MEMSAVER_INLINE void SourceReader::open_cached(OwnedFile& file, const std::string& path) const {
    const Status status = file.open(driver_, path.c_str(), false);
    if (!status.ok()) raise(status, "open a file to load from", about(path));
}

MEMSAVER_INLINE FileFacts SourceReader::facts_of(const OwnedFile& file, const std::string& path) const {
    FileFacts facts;
    const Status status = driver_.file_facts(file.get(), facts);
    if (!status.ok()) raise(status, "query a file's properties", about(path));
    return facts;
}

MEMSAVER_INLINE void SourceReader::raise_changed(const std::string& path) const {
    throw SourceChanged{text_of({error_prefix_, path,
                                 " is no longer the file that bytes were loaded from: it was replaced, "
                                 "modified or truncated"})};
}

MEMSAVER_INLINE Status SourceReader::read(const Open& open, std::byte* to, std::size_t bytes,
                                          std::size_t offset) const noexcept {
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

} // namespace detail

} // namespace memsaver::inline v0_3
