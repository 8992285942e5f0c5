// The store of a FileSource: some bytes have their home in a file, which is only read; a HostStore keeps the rest.
#pragma once

#include "memsaver/backup/host_store.hpp"
#include "memsaver/backup/source_files.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/core/finally.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

///     locations, as the slot sees them   |       a block        |     a block      |
///                                             |        |    `----.      |
///     parts                               in a file   kept    in a file  kept
///
/// The slot's locations are only names. Bytes in no part have been neither loaded nor saved so far, and become a kept
/// part at the next save. Used by one thread at a time, but for `taken_by`; transfers do not look at the parts.
class SourceStore final : public NamingStore {
public:
    SourceStore(const AnyDriver& driver, const StoreOptions& options)
        : NamingStore{driver, new_shared<HostStore>(driver, true, options), options, 32_MiB, "read a file"} {}

    [[nodiscard]] std::size_t alignment() const noexcept override { return inside_->alignment(); }
    void discard(std::uint64_t location, std::size_t bytes) override {
        for (auto part = part_at(location); part != parts_.end() && part->first < location + bytes;) part = erase(part);
    }
    void shrink(LocationSpace&) noexcept override { inside_->shrink(packed_); }
    Status clear() noexcept override {
        parts_.clear();
        files_.clear();
        return drop_kept();
    }
    void prepare(Vector<Unit> units) override { inside_->prepare(take(units)); }
    /// The written bytes are kept from now on, and no longer read from a file.
    void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override {
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
    [[nodiscard]] BackupView view(std::uint64_t location, std::size_t bytes) const override {
        require_filled(location, bytes);
        const Vector<Unit> parts = at_home({{0, location, bytes}}); // their addresses are offsets in the view
        if (parts.size() == 1 && !SourceFile::holds(parts.front().location))
            return inside_->view(parts.front().location, bytes);
        SourceReader reader{driver_, error_prefix_};
        const auto copy = pages_for(bytes);
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

    /// Names hold no bytes.
    Status get(std::byte*, std::uint64_t, std::size_t) const noexcept override {
        return {StatusKind::unsupported, 0, "this store has no plain bytes"};
    }
    /// Reads mapped bytes from a file and makes it their home. If the file cannot be opened, throws before anything has
    /// changed. If reading fails, some bytes may be new, and none of them has a home.
    void load(const Unit& unit, const FileRange& from, const LiveSet& live) {
        about(live);
        auto reader = UniquePtr<SourceReader>::make(driver_, error_prefix_);
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
    /// Keeps bytes that are in no part from being saved.
    void leave_out(std::uint64_t location, std::size_t bytes) {
        const auto next = part_at(location);
        if (bytes != 0 && (next == parts_.end() || next->first >= location + bytes))
            parts_.emplace(location, Part{bytes});
    }
    /// The next save that finds these bytes mapped makes those in files kept.
    void changed(std::uint64_t location, std::size_t bytes) {
        cut_at(location);
        cut_at(location + bytes);
        each_part(location, bytes, [](Part& part) { part.changed = part.file != nullptr; });
    }
    void all_changed() noexcept {
        for (auto& [name, part] : parts_) part.changed = part.file != nullptr;
    }
    /// Drops all kept parts, and frees the host memory.
    Status drop_kept() noexcept {
        std::erase_if(parts_, [](const auto& part) { return part.second.kept(); });
        packed_.clear();
        kept_bytes_ = 0;
        return first_failure({inside_->clear(), leave_ring()});
    }
    using NamingStore::leave_ring; // of the buffers that files are read through

private:
    struct Part {
        std::size_t bytes = 0;
        std::uint64_t at = 0;                     ///< location in the file or the inner store; 0: nowhere, left out
        std::shared_ptr<const SourceFile> file{}; ///< null: kept
        bool changed = false;                     ///< in memory since it was read from the file
        bool filled = false;                      ///< if kept: a save has begun to write it

        [[nodiscard]] bool kept() const noexcept { return file == nullptr && at != 0; }
    };
    using Parts = std::map<std::uint64_t, Part>; // by name, without overlap

    UniquePtr<Transfer> start(Direction direction, Vector<Unit> units, const LiveSet& live) override {
        if (direction == Direction::out) {
            look_at_files(live);
            Vector<Unit> kept = take(units);
            for (const Unit& unit : units)
                each_part(unit.location, unit.bytes, [](Part& part) { part.filled = part.kept(); });
            return inside_->move(direction, std::move(kept), live);
        }
        UniquePtr<SourceReader> reader;
        for (const Unit& unit : units) {
            each_part(unit.location, unit.bytes, [&](const Part& part) {
                if (part.file == nullptr) return;
                if (!reader) reader = UniquePtr<SourceReader>::make(driver_, error_prefix_);
                reader->open(part.file);
            });
        }
        units = at_home(units);
        if (reader) return read(std::move(units), std::move(reader), live);
        return inside_->move(direction, std::move(units), live);
    }
    /// Starts a transfer of bytes in files and of kept ones. The files are open in `reader`.
    UniquePtr<Transfer> read(Vector<Unit> units, UniquePtr<SourceReader> reader, const LiveSet& live) {
        Vector<Piece> pieces;
        for (Vector<Unit>& group : in_wanted_order(std::move(units), live.first, true)) {
            Vector<Unit> kept;
            erase_in(group, [&](const Unit& unit) {
                if (SourceFile::holds(unit.location)) return false;
                kept.push_back(unit);
                return true;
            });
            for (Piece& piece : cut(std::move(group), shape_.buffer_bytes)) pieces.push_back(std::move(piece));
            for (Piece& piece : inside_->reached(std::move(kept), HostCells::cell_bytes))
                pieces.push_back(std::move(piece));
        }
        auto work =
            staged_transfer(moving(Direction::in, live), std::move(pieces), *reader, shared_ring(), error_prefix_);
        work->accompany(std::move(reader));
        work->start();
        return work;
    }
    /// Makes all bytes kept that are not in a file or have changed. Returns the kept ones, as the inner store has them.
    Vector<Unit> take(const Vector<Unit>& units) {
        for (const Unit& unit : units) { // what has changed has no home any more
            for (auto part = part_at(unit.location); part != parts_.end() && part->first < unit.location + unit.bytes;)
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
                    const Finally placed{[&] {
                        if (part->second.at == 0) parts_.erase(part);
                    }};
                    part->second.at = packed_.take(bytes, at, missing);
                    if (part->second.at != 0) kept_bytes_ += bytes;
                    at = end;
                }
            }
            if (missing != 0) packed_.grow(*inside_, missing, last_live_);
        }
        Vector<Unit> kept = at_home(units);
        erase_in(kept, [](const Unit& unit) { return SourceFile::holds(unit.location); });
        return kept;
    }
    /// Returns units whose locations are those in the files and the inner store.
    [[nodiscard]] Vector<Unit> at_home(const Vector<Unit>& units) const {
        Vector<Unit> all;
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
    /// Marks the parts of files that have changed as changed. Reports them to `live.tell`.
    void look_at_files(const LiveSet& live) {
        for (const auto& file : files_) {
            if (!any_in(parts_, [&](const auto& each) { return each.second.file == file && !each.second.changed; }))
                continue;
            SourceReader reader{driver_, error_prefix_};
            try {
                if (reader.look(file->path) == file->facts) continue;
            } catch (const Error&) { // on any error: the bytes are still in memory
            }
            for (auto& [name, part] : parts_) part.changed = part.changed || part.file == file;
            if (live.tell) live.tell(file->path + " has changed or cannot be read: its bytes are saved in host memory");
        }
    }
    /// Returns the file as it is now: the known SourceFile if it is the same.
    std::shared_ptr<const SourceFile> file_now(const std::string& path, SourceReader& reader) {
        const FileFacts facts = reader.look(path);
        std::shared_ptr<const SourceFile> file;
        for (const auto& known : files_) {
            if (known->facts == facts && known->path == path) file = known;
        }
        if (file == nullptr) {
            file = new_shared<const SourceFile>(SourceFile{path, facts, next_file_});
            files_.push_back(file);
            next_file_ += align_up(facts.bytes + 1, SourceFile::spacing);
        }
        erase_in(files_, [](const auto& each) { return each.use_count() == 1; });
        return file;
    }

    /// Throws Misuse if some of these bytes are in no file and were never saved.
    void require_filled(std::uint64_t location, std::size_t bytes) const {
        bool filled = bytes_of(at_home({{0, location, bytes}})) == bytes;
        for (auto part = part_at(location); part != parts_.end() && part->first < location + bytes; ++part)
            filled = filled && (part->second.filled || !part->second.kept());
        if (!filled) misuse({"this block has no complete backup"});
    }

    /// Returns the first part that ends behind a location.
    [[nodiscard]] Parts::const_iterator part_at(std::uint64_t location) const noexcept {
        const auto after = parts_.upper_bound(location);
        if (after == parts_.begin()) return after;
        const auto before = std::prev(after);
        return before->first + before->second.bytes > location ? before : after;
    }
    [[nodiscard]] Parts::iterator part_at(std::uint64_t location) noexcept {
        const auto part = std::as_const(*this).part_at(location);
        return parts_.erase(part, part); // as an iterator that may change it
    }
    template <class Act>
    void each_part(std::uint64_t location, std::size_t bytes, const Act& act) {
        for (auto part = part_at(location); part != parts_.end() && part->first < location + bytes; ++part)
            act(part->second);
    }
    /// Cuts the part at a location in two, unless it is kept.
    void cut_at(std::uint64_t location) {
        const auto part = part_at(location);
        if (part == parts_.end() || part->first >= location || part->second.kept()) return;
        const auto bytes = static_cast<std::size_t>(location - part->first);
        Part rest = part->second;
        rest.bytes -= bytes;
        if (rest.at != 0) rest.at += bytes;
        parts_.emplace(location, std::move(rest)); // the last call that may throw
        part->second.bytes = bytes;
    }
    Parts::iterator erase(Parts::iterator part) {
        const Part& its = part->second;
        if (its.kept()) {
            packed_.give(its.at, its.bytes); // may throw; nothing has changed then
            kept_bytes_ -= its.bytes;
        }
        return parts_.erase(part);
    }

    Parts parts_;
    Vector<std::shared_ptr<const SourceFile>> files_; ///< those of the parts
    std::uint64_t next_file_ = SourceFile::least_location;
};

} // namespace memsaver::inline v0_3::detail
