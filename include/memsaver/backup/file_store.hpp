// The store of a FileBackup: an unnamed file.
#pragma once

#include "memsaver/backup/store.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Keeps bytes in an unnamed file in a directory. The file is opened when storage is first needed. A location is the
/// file offset plus one page, so that no location is 0. Blocks begin at pages of their own, because direct writes need
/// whole pages.
class FileStore final : public BackupStore {
public:
    static constexpr std::size_t page = 4096;
    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }

    FileStore(AnyDriver driver, std::string directory, StoreOptions options)
        : BackupStore{std::move(driver), std::move(options), 32_MiB, "read a backup file"}, directory_{
                                                                                                std::move(directory)} {}

    /// Allocates disk space, so that a full disk is an error before anything is written.
    Room grow(std::size_t bytes, const LiveSet& live) override {
        about(live);
        if (!file_.owns()) {
            const Status status = file_.open(driver_, directory_.c_str());
            if (!status.ok()) raise_of(status, "open a backup file", {error_prefix_, "in ", directory_});
        }
        const Status status = driver_.allocate_file(file_.get(), size_, bytes);
        if (!status.ok()) {
            (void)driver_.punch_file(file_.get(), size_, bytes);
            raise_of(status, "allocate space in a backup file", {error_prefix_, in_bytes(bytes), " in ", directory_},
                     bytes);
        }
        const Room room{size_ + page, bytes};
        size_ += bytes;
        return room;
    }
    void shrink(LocationSpace&) noexcept override {} // `discard` has punched out the unused parts
    void discard(std::uint64_t location, std::size_t bytes) noexcept override {
        if (options_.observer) options_.observer->discarded(location, bytes);
        forget_half_changed(location, bytes);
        if (!file_.owns()) return;
        (void)driver_.punch_file(file_.get(), location - page, bytes);
        punched_ = true;
    }
    Status clear() noexcept override {
        if (options_.observer) options_.observer->discarded(page, size_);
        half_changed_.clear();
        punched_ = false;
        size_ = 0;
        return first_failure({file_.close(), leave_ring()});
    }

    void prepare(Vector<Unit> units) override {
        take_room(units);
        prepare_ring(std::move(units));
    }

    void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override {
        const std::uint64_t first = unit.location + offset;
        const auto copy = pages_for(std::min(options_.observer ? unit.bytes : bytes, shape_.buffer_bytes) + 2 * page);
        std::byte* const data = copy->data();
        for (const Unit& part : units_in(cut({unit}, shape_.buffer_bytes), first, bytes)) {
            const std::uint64_t begin = std::max(part.location, first);
            const std::uint64_t end = std::min(part.location + part.bytes, first + bytes);
            // With an observer, reads and writes whole parts; otherwise only the pages that change.
            const std::uint64_t from_page = align_down(options_.observer ? part.location : begin, page);
            const std::uint64_t to_page = align_up(options_.observer ? part.location + part.bytes : end, page);
            const auto span = static_cast<std::size_t>(to_page - from_page);
            check_of(get(data, from_page, span), "read a backup file", bytes);
            const bool checked = options_.observer && !is_in(half_changed_, part.location);
            if (checked && !replaced_whole(part, first, bytes)) {
                options_.observer->restoring(part, data + (part.location - from_page));
            }
            std::memcpy(data + (begin - from_page), from + (begin - first), end - begin);
            if (checked) half_changed_.push_back(part.location);
            check_of(put(data, from_page, span), "write a backup file", bytes);
            if (options_.observer) options_.observer->saved(part, data + (part.location - from_page));
            forget_half_changed(part.location, 1);
        }
    }

    // ByteStore
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept override {
        return driver_.write_file(file_.get(), from, bytes, location - page);
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override {
        return driver_.read_file(file_.get(), to, bytes, location - page);
    }

private:
    /// Allocates disk space again for parts that were punched out, before anything is written. See `grow`.
    void take_room(const Vector<Unit>& units) {
        if (!punched_) return; // `grow` allocated all of it
        for (const Unit& unit : units) {
            const std::uint64_t begin = align_down(unit.location, page);
            const std::size_t bytes = align_up(unit.location + unit.bytes, page) - begin;
            const Status status = driver_.allocate_file(file_.get(), begin - page, bytes);
            if (!status.ok())
                raise_of(status, "allocate space in a backup file",
                         {error_prefix_, in_bytes(bytes), " in ", directory_}, bytes);
        }
    }
    UniquePtr<Transfer> start(Direction direction, Vector<Unit> units, const LiveSet& live) override {
        if (direction == Direction::out) {
            take_room(units);
            for (const Unit& unit : units) forget_half_changed(unit.location, unit.bytes); // new checksums
        }
        return through_ring(direction, std::move(units), live);
    }
    void forget_half_changed(std::uint64_t location, std::size_t bytes) noexcept {
        erase_in(half_changed_, [&](std::uint64_t unit) { return location <= unit && unit < location + bytes; });
    }

    std::string directory_;
    OwnedFile file_;
    std::size_t size_ = 0;
    bool punched_ = false;               ///< some of its disk space may have been freed
    Vector<std::uint64_t> half_changed_; ///< units whose last change was not written: no checksum is valid
};

} // namespace memsaver::inline v0_3::detail
