// Definitions of source_index.hpp.
#pragma once

#include "memsaver/backup/host_store.hpp"
#include "memsaver/backup/source_index.hpp"
#include "memsaver/core/ranges.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Returns the mapped ranges of a block, adjacent ones joined.
MEMSAVER_INLINE std::vector<Range> mapped_of(const LiveBlock& block, const LiveSet& live) {
    return without(intersection({{block.address, block.bytes}}, live.extents), {});
}

MEMSAVER_INLINE SourceIndex::SourceIndex(AnyDriver machine, StoreOptions how, bool retain_room)
    : driver{std::move(machine)}, options{std::move(how)}, retain{retain_room}, share{driver, options.ring_bytes,
                                                                                      options.crew.threads, 32_MiB},
      rest{std::make_shared<HostStore>(driver, true, options), {Refresh::every_pause, retain_room, false}} {}

MEMSAVER_INLINE std::vector<LiveBlock> SourceIndex::kept(const LiveSet& live, bool take) {
    const ListingGuard listing{*this};
    const std::vector<LiveBlock> blocks = live.blocks();
    std::vector<LiveBlock> all;
    const std::lock_guard lock{mutex_};
    for (const LiveBlock& block : blocks) {
        if (gone(block.serial)) continue;
        const std::vector<Range> mapped = mapped_of(block, live);
        Parts& parts = blocks_[block.serial];
        if (take) {
            Parts now;
            std::vector<Range> known;
            for (const Part& part : parts) {
                const Range range{block.address + part.offset, part.bytes};
                if (part.file == nullptr || !part.changed) {
                    now.push_back(part);
                    known.push_back(range);
                    continue;
                }
                for (const Range& away : without({range}, mapped)) { // paused: the file has the only copy
                    const std::size_t skipped = away.address - range.address;
                    now.push_back({part.offset + skipped, away.bytes, part.file, part.at + skipped, true});
                    known.push_back(away);
                }
            }
            const std::size_t asked = block.asked != 0 ? block.asked : block.bytes;
            for (const Range& range : without(mapped, known)) {
                // Skip padding: kept alone it would cost host memory although all else is in files.
                if (range.address - block.address < asked)
                    now.push_back({range.address - block.address, range.bytes, {}, fresh_serial()});
            }
            std::sort(now.begin(), now.end(), [](const Part& a, const Part& b) { return a.offset < b.offset; });
            parts.swap(now);
        }
        for (const Part& part : parts) {
            const LiveBlock whole = part.kept_in(block);
            const bool here = part.file == nullptr && !intersection({{whole.address, whole.bytes}}, mapped).empty();
            if (here) all.push_back(whole);
        }
    }
    return all;
}

MEMSAVER_INLINE std::vector<Unit> SourceIndex::in_files(const LiveSet& live, SourceReader& reader) {
    const std::vector<LiveBlock> blocks = live.blocks();
    std::vector<std::shared_ptr<const SourceFile>> files;
    std::vector<Unit> units;
    {
        const std::lock_guard lock{mutex_};
        for (const LiveBlock& block : blocks) {
            const auto parts = blocks_.find(block.serial);
            if (parts == blocks_.end()) continue;
            const std::vector<Range> mapped = mapped_of(block, live);
            for (const Part& part : parts->second) {
                if (part.file == nullptr) continue;
                const Address begin = block.address + part.offset;
                for (const Range& range : intersection({{begin, part.bytes}}, mapped)) {
                    units.push_back({range.address, part.file->first + part.at + (range.address - begin), range.bytes});
                    if (files.empty() || files.back() != part.file) files.push_back(part.file);
                }
            }
        }
    }
    for (const auto& file : files) reader.open(file);
    return units;
}

MEMSAVER_INLINE void SourceIndex::look_at_files(const LiveSet& live) {
    std::vector<std::shared_ptr<const SourceFile>> files;
    {
        const std::lock_guard lock{mutex_};
        for (const auto& [serial, parts] : blocks_) {
            for (const Part& part : parts) {
                if (part.file != nullptr && !part.changed) files.push_back(part.file);
            }
        }
    }
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    for (const auto& file : files) {
        SourceReader reader{driver, of_tag(live.tag)};
        try {
            if (reader.look(file->path) == file->facts) continue;
        } catch (const Error&) { // on any error: the bytes are still in memory
        }
        {
            const std::lock_guard lock{mutex_};
            for (auto& [serial, parts] : blocks_) {
                for (Part& part : parts) part.changed = part.changed || part.file == file;
            }
        }
        if (live.tell) live.tell(file->path + " has changed or cannot be read: its bytes are saved in host memory");
    }
}

MEMSAVER_INLINE std::shared_ptr<const SourceFile> SourceIndex::file_now(const std::string& path, SourceReader& reader) {
    const FileFacts facts = reader.look(path);
    auto& known = files_[path];
    if (known == nullptr || known->facts != facts) {
        known = std::make_shared<const SourceFile>(SourceFile{path, facts, next_first_});
        next_first_ += align_up(facts.bytes + 1, SourceFile::spacing);
    }
    const std::shared_ptr<const SourceFile> file = known;
    std::erase_if(files_, [&](const auto& each) { return each.second.use_count() == 1; });
    return file;
}

MEMSAVER_INLINE void SourceIndex::cut_out(const LiveBlock& block, std::size_t offset, std::size_t bytes) {
    Parts dropped;
    {
        const std::lock_guard lock{mutex_};
        const auto parts = blocks_.find(block.serial);
        if (parts == blocks_.end()) return;
        parts->second = without_range(parts->second, offset, bytes, dropped);
    }
    for (const Part& part : dropped) rest.forget(part.at);
}

MEMSAVER_INLINE void SourceIndex::put(const LiveBlock& block, Part part) {
    const std::lock_guard lock{mutex_};
    if (!gone(block.serial)) insert(blocks_[block.serial], std::move(part));
}

MEMSAVER_INLINE void SourceIndex::change(const LiveBlock& block, std::size_t offset, std::size_t bytes) {
    const std::lock_guard lock{mutex_};
    const auto found = blocks_.find(block.serial);
    if (found == blocks_.end()) return;
    Parts now;
    for (const Part& part : found->second) {
        const std::size_t begin = std::max(part.offset, offset);
        const std::size_t end = std::min(part.end(), offset + bytes);
        if (part.file == nullptr || begin >= end) {
            now.push_back(part);
            continue;
        }
        const auto piece = [&](std::size_t from, std::size_t to, bool changed) {
            if (from != to) now.push_back({from, to - from, part.file, part.at + (from - part.offset), changed});
        };
        piece(part.offset, begin, part.changed);
        piece(begin, end, true);
        piece(end, part.end(), part.changed);
    }
    found->second.swap(now);
}

MEMSAVER_INLINE void SourceIndex::change_all() noexcept {
    const std::lock_guard lock{mutex_};
    for (auto& [serial, parts] : blocks_) {
        for (Part& part : parts) part.changed = true;
    }
}

MEMSAVER_INLINE SourceIndex::Parts SourceIndex::parts_of(std::uint64_t serial, std::size_t offset, std::size_t bytes) {
    Parts parts;
    const std::lock_guard lock{mutex_};
    const auto found = blocks_.find(serial);
    std::size_t known = 0;
    if (found != blocks_.end()) {
        for (const Part& part : found->second) {
            if (part.end() <= offset || offset + bytes <= part.offset) continue;
            parts.push_back(part);
            known += std::min(part.end(), offset + bytes) - std::max(part.offset, offset);
        }
    }
    if (known != bytes) misuse({"this block has no complete backup"});
    return parts;
}

MEMSAVER_INLINE bool SourceIndex::keep(std::uint64_t serial, const Part& part) {
    Parts dropped;
    const std::lock_guard lock{mutex_};
    const auto parts = blocks_.find(serial);
    if (parts == blocks_.end()) return false;
    Parts now = without_range(parts->second, part.offset, part.bytes, dropped);
    insert(now, part);
    parts->second.swap(now);
    return true;
}

MEMSAVER_INLINE void SourceIndex::forget(std::uint64_t serial) noexcept {
    const std::lock_guard lock{mutex_};
    try {
        if (listing_) gone_.insert(serial);
    } catch (const std::bad_alloc&) { // the block gets an unused entry
    }
    const auto parts = blocks_.find(serial);
    if (parts == blocks_.end()) return;
    for (const Part& part : parts->second) {
        if (part.file == nullptr) rest.forget(part.at);
    }
    blocks_.erase(parts);
}

MEMSAVER_INLINE void SourceIndex::clear() noexcept {
    const std::lock_guard lock{mutex_};
    blocks_.clear();
    files_.clear();
}

MEMSAVER_INLINE std::unique_ptr<Transfer> SourceIndex::read(std::vector<Unit> units, const SourceReader& reader,
                                                            const LiveSet& live, ProgressSink progress) {
    share.join(live.host_budget);
    const auto apart = [](const Unit&, const Unit&) { return false; };
    auto work =
        staged_transfer(CopyLane{driver, Direction::in},
                        cut_in_wanted_order(std::move(units), share.buffer_bytes(), live.first, true, apart), reader,
                        share.ring(), options.crew, nullptr, std::move(progress), of_tag(live.tag), live.before_write);
    work->start();
    return work;
}

MEMSAVER_INLINE SourceIndex::ListingGuard::ListingGuard(SourceIndex& index) : index_{index} {
    const std::lock_guard lock{index_.mutex_};
    index_.listing_ = true;
}

MEMSAVER_INLINE SourceIndex::ListingGuard::~ListingGuard() {
    const std::lock_guard lock{index_.mutex_};
    index_.listing_ = false;
    index_.gone_.clear();
}

MEMSAVER_INLINE SourceIndex::Parts SourceIndex::without_range(const Parts& parts, std::size_t offset, std::size_t bytes,
                                                              Parts& dropped) {
    Parts now;
    now.reserve(parts.size() + 2); // one part may be cut in two, and `insert` may add one
    for (const Part& part : parts) {
        const std::size_t end = offset + bytes;
        if (part.end() <= offset || end <= part.offset) {
            now.push_back(part);
        } else if (part.file == nullptr) {
            dropped.push_back(part);
        } else {
            if (part.offset < offset)
                now.push_back({part.offset, offset - part.offset, part.file, part.at, part.changed});
            if (end < part.end())
                now.push_back({end, part.end() - end, part.file, part.at + (end - part.offset), part.changed});
        }
    }
    return now;
}

MEMSAVER_INLINE void SourceIndex::insert(Parts& parts, Part part) {
    const auto place = std::lower_bound(parts.begin(), parts.end(), part.offset,
                                        [](const Part& each, std::size_t offset) { return each.offset < offset; });
    parts.insert(place, std::move(part));
}

} // namespace detail

} // namespace memsaver::inline v0_3
