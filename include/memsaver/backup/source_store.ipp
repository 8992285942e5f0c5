// Definitions of source_store.hpp.
#pragma once

#include "memsaver/backup/source_store.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE SourceStore::SourceStore(AnyDriver driver, const StoreOptions& options)
    : KeptStore{driver, options, 32_MiB, "read a file"}, inside_{std::make_shared<HostStore>(std::move(driver), true,
                                                                                             options)} {}

MEMSAVER_INLINE Room SourceStore::grow(std::size_t bytes, const LiveSet& live) {
    about(live);
    last_live_.tag = live.tag;
    last_live_.host_budget = live.host_budget;
    const Room names{next_name_, bytes};
    next_name_ += align_up(bytes, alignment());
    return names;
}

MEMSAVER_INLINE void SourceStore::discard(std::uint64_t location, std::size_t bytes) {
    for (auto part = part_at(location); part != parts_.end() && part->first < location + bytes;) part = erase(part);
}

MEMSAVER_INLINE Status SourceStore::clear() noexcept {
    parts_.clear();
    files_.clear();
    return drop_kept();
}

MEMSAVER_INLINE Status SourceStore::drop_kept() noexcept {
    std::erase_if(parts_, [](const auto& part) { return part.second.kept(); });
    packed_.clear();
    kept_bytes_ = 0;
    return first_failure({inside_->clear(), share_.leave()});
}

// --- parts ---

MEMSAVER_INLINE SourceStore::Parts::const_iterator SourceStore::part_at(std::uint64_t location) const noexcept {
    const auto after = parts_.upper_bound(location);
    if (after == parts_.begin()) return after;
    const auto before = std::prev(after);
    return before->first + before->second.bytes > location ? before : after;
}

MEMSAVER_INLINE SourceStore::Parts::iterator SourceStore::part_at(std::uint64_t location) noexcept {
    const auto part = std::as_const(*this).part_at(location);
    return parts_.erase(part, part); // as an iterator that may change it
}

MEMSAVER_INLINE void SourceStore::cut_at(std::uint64_t location) {
    const auto part = part_at(location);
    if (part == parts_.end() || part->first >= location || part->second.kept()) return;
    const auto bytes = static_cast<std::size_t>(location - part->first);
    Part rest = part->second;
    rest.bytes -= bytes;
    if (rest.at != 0) rest.at += bytes;
    parts_.emplace(location, std::move(rest)); // the last call that may throw
    part->second.bytes = bytes;
}

MEMSAVER_INLINE SourceStore::Parts::iterator SourceStore::erase(Parts::iterator part) {
    const Part& its = part->second;
    if (its.kept()) {
        packed_.give(its.at, its.bytes); // may throw; nothing has changed then
        kept_bytes_ -= its.bytes;
    }
    return parts_.erase(part);
}

MEMSAVER_INLINE std::vector<Unit> SourceStore::at_home(const std::vector<Unit>& units) const {
    std::vector<Unit> all;
    for (const Unit& unit : units) {
        for (auto part = part_at(unit.location); part != parts_.end() && part->first < unit.location + unit.bytes;
             ++part) {
            const std::uint64_t begin = std::max(part->first, unit.location);
            const std::uint64_t end = std::min(part->first + part->second.bytes, unit.location + unit.bytes);
            if (part->second.at == 0) continue;
            all.push_back({unit.device + (begin - unit.location), part->second.at + (begin - part->first),
                           static_cast<std::size_t>(end - begin)});
        }
    }
    return all;
}

MEMSAVER_INLINE std::vector<Unit> SourceStore::take(const std::vector<Unit>& units) {
    for (const Unit& unit : units) { // what has changed has no home any more, as far as it is mapped
        const std::uint64_t end = unit.location + unit.bytes;
        for (const std::uint64_t border : {unit.location, end}) {
            const auto part = part_at(border);
            if (part != parts_.end() && part->second.changed) cut_at(border);
        }
        for (auto part = part_at(unit.location); part != parts_.end() && part->first < end;)
            part = part->second.changed ? erase(part) : std::next(part);
    }
    for (std::size_t missing = 1; missing != 0;) {
        missing = 0;
        for (const Unit& unit : units) {
            for (std::uint64_t at = unit.location; at < unit.location + unit.bytes;) {
                const auto next = part_at(at);
                if (next != parts_.end() && next->first <= at) {
                    at = next->first + next->second.bytes;
                    continue;
                }
                std::uint64_t end = unit.location + unit.bytes;
                if (next != parts_.end()) end = std::min(end, next->first);
                const auto bytes = static_cast<std::size_t>(end - at);
                const auto part = parts_.emplace_hint(next, at, Part{bytes});
                part->second.at = packed_.take(bytes, at, missing);
                if (part->second.at != 0)
                    kept_bytes_ += bytes;
                else
                    parts_.erase(part);
                at = end;
            }
        }
        if (missing != 0) packed_.grow(*inside_, missing, last_live_);
    }
    std::vector<Unit> kept = at_home(units);
    erase_in(kept, [](const Unit& unit) { return SourceFile::holds(unit.location); });
    return kept;
}

MEMSAVER_INLINE void SourceStore::changed(std::uint64_t location, std::size_t bytes) {
    cut_at(location);
    cut_at(location + bytes);
    for (auto part = part_at(location); part != parts_.end() && part->first < location + bytes; ++part)
        part->second.changed = part->second.file != nullptr;
}

MEMSAVER_INLINE void SourceStore::all_changed() noexcept {
    for (auto& [name, part] : parts_) part.changed = part.file != nullptr;
}

MEMSAVER_INLINE void SourceStore::leave_out(std::uint64_t location, std::size_t bytes) {
    const auto next = part_at(location);
    if (bytes != 0 && (next == parts_.end() || next->first >= location + bytes)) parts_.emplace(location, Part{bytes});
}

// --- files ---

MEMSAVER_INLINE void SourceStore::look_at_files(const LiveSet& live) {
    std::vector<std::shared_ptr<const SourceFile>> files;
    for (const auto& [name, part] : parts_) {
        if (part.file != nullptr && !part.changed) files.push_back(part.file);
    }
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    for (const auto& file : files) {
        SourceReader reader{driver_, error_prefix_};
        try {
            if (reader.look(file->path) == file->facts) continue;
        } catch (const Error&) { // on any error: the bytes are still in memory
        }
        for (auto& [name, part] : parts_) part.changed = part.changed || part.file == file;
        if (live.tell) live.tell(file->path + " has changed or cannot be read: its bytes are saved in host memory");
    }
}

MEMSAVER_INLINE std::shared_ptr<const SourceFile> SourceStore::file_now(const std::string& path, SourceReader& reader) {
    const FileFacts facts = reader.look(path);
    auto& known = files_[path];
    if (known == nullptr || known->facts != facts) {
        known = std::make_shared<const SourceFile>(SourceFile{path, facts, next_file_});
        next_file_ += align_up(facts.bytes + 1, SourceFile::spacing);
    }
    const std::shared_ptr<const SourceFile> file = known;
    std::erase_if(files_, [&](const auto& each) { return each.second.use_count() == 1; });
    return file;
}

MEMSAVER_INLINE void SourceStore::load(const Unit& unit, const FileRange& from, const LiveSet& live) {
    about(live);
    auto reader = std::make_unique<SourceReader>(driver_, error_prefix_);
    const std::shared_ptr<const SourceFile> file = file_now(from.path, *reader);
    if (from.offset > file->facts.bytes || from.bytes > file->facts.bytes - from.offset) {
        misuse({from.path, " has ", in_bytes(file->facts.bytes), "; ", in_bytes(from.bytes), " at offset ",
                in_digits(from.offset), " extend past its end"});
    }
    reader->open(file);
    cut_at(unit.location);
    cut_at(unit.location + unit.bytes);
    discard(unit.location, unit.bytes); // all of a kept part too: what is not loaded is saved anew
    const std::uint64_t at = file->first + from.offset;
    {
        const auto moving = read({{unit.device, at, unit.bytes}}, std::move(reader), live);
        const Status status = moving->wait();
        if (!status.ok()) raise_of(status, "load bytes", {error_prefix_, from.path});
    }
    parts_.emplace(unit.location, Part{unit.bytes, at, file});
}

// --- transfers ---

MEMSAVER_INLINE std::unique_ptr<Transfer> SourceStore::start(Direction direction, std::vector<Unit> units,
                                                             const LiveSet& live, const std::vector<Range>&) {
    if (direction == Direction::out) {
        look_at_files(live);
        std::vector<Unit> kept = take(units);
        for (const Unit& unit : units) {
            for (auto part = part_at(unit.location); part != parts_.end() && part->first < unit.location + unit.bytes;
                 ++part)
                part->second.filled = part->second.kept();
        }
        return inside_->out(std::move(kept), live);
    }
    std::unique_ptr<SourceReader> reader;
    for (const Unit& unit : units) {
        for (auto part = part_at(unit.location); part != parts_.end() && part->first < unit.location + unit.bytes;
             ++part) {
            if (part->second.file == nullptr) continue;
            if (!reader) reader = std::make_unique<SourceReader>(driver_, error_prefix_);
            reader->open(part->second.file);
        }
    }
    units = at_home(units);
    return reader ? read(std::move(units), std::move(reader), live) : inside_->in(std::move(units), live);
}

MEMSAVER_INLINE std::unique_ptr<Transfer> SourceStore::read(std::vector<Unit> units,
                                                            std::unique_ptr<SourceReader> reader, const LiveSet& live) {
    std::vector<Piece> pieces;
    for (std::vector<Unit>& group : in_wanted_order(std::move(units), live.first, true)) {
        std::vector<Unit> kept;
        erase_in(group, [&](const Unit& unit) {
            if (SourceFile::holds(unit.location)) return false;
            kept.push_back(unit);
            return true;
        });
        for (Piece& piece : cut(std::move(group), share_.buffer_bytes())) pieces.push_back(std::move(piece));
        for (Piece& piece : inside_->reached(std::move(kept))) pieces.push_back(std::move(piece));
    }
    auto work = staged_transfer(CopyLane{driver_, Direction::in}, std::move(pieces), *reader, share_.ring(),
                                options_.crew, nullptr, live.progress, error_prefix_, live.before_write);
    work->accompany(std::move(reader));
    work->start();
    return work;
}

// --- kept bytes ---

MEMSAVER_INLINE void SourceStore::require_filled(std::uint64_t location, std::size_t bytes) const {
    bool filled = bytes_of(at_home({{0, location, bytes}})) == bytes;
    for (auto part = part_at(location); part != parts_.end() && part->first < location + bytes; ++part)
        filled = filled && (part->second.filled || !part->second.kept());
    if (!filled) misuse({"this block has no complete backup"});
}

MEMSAVER_INLINE BackupView SourceStore::view(std::uint64_t location, std::size_t bytes) const {
    require_filled(location, bytes);
    const std::vector<Unit> parts = at_home({{0, location, bytes}}); // their addresses are offsets in the view
    if (parts.size() == 1 && !SourceFile::holds(parts.front().location))
        return inside_->view(parts.front().location, bytes);
    SourceReader reader{driver_, error_prefix_};
    const auto copy = share_.copy(bytes, error_prefix_);
    std::byte* const data = copy->data();
    for (const Unit& part : parts) {
        if (const auto& file = part_at(location + part.device)->second.file; file != nullptr) {
            reader.copy(data + part.device, file, part.location - file->first, part.bytes);
        } else {
            std::memcpy(data + part.device, inside_->view(part.location, part.bytes).data(), part.bytes);
        }
    }
    reader.arrived();
    return {copy, data, bytes};
}

MEMSAVER_INLINE void SourceStore::change(const Unit& unit, std::size_t offset, const std::byte* from,
                                         std::size_t bytes) {
    const std::uint64_t first = unit.location + offset;
    require_filled(first, bytes);
    for (std::uint64_t at = first; at < first + bytes;) {
        const auto part = part_at(at);
        const auto count = static_cast<std::size_t>(std::min(first + bytes, part->first + part->second.bytes) - at);
        const std::byte* const fresh = from + (at - first);
        if (part->second.file == nullptr) {
            inside_->change({0, part->second.at, part->second.bytes}, at - part->first, fresh, count);
        } else {
            cut_at(at);
            cut_at(at + count);
            Part kept{count};
            kept.filled = true;
            for (std::size_t missing = 0; (kept.at = packed_.take(count, at, missing)) == 0; missing = 0)
                packed_.grow(*inside_, missing, last_live_);
            try {
                const Unit whole{0, kept.at, count};
                inside_->prepare({whole});
                inside_->change(whole, 0, fresh, count);
            } catch (...) { // no part refers to it
                packed_.give(kept.at, count);
                throw;
            }
            kept_bytes_ += count;
            parts_.at(at) = kept;
        }
        at += count;
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
