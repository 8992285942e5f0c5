// Definitions of file_store.hpp.
#pragma once

#include "memsaver/backup/file_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE FileStore::FileStore(AnyDriver driver, std::string directory, StoreOptions options)
    : driver_{driver}, directory_{std::move(directory)}, options_{std::move(options)}, share_{std::move(driver),
                                                                                              options_.ring_bytes,
                                                                                              options_.crew.threads,
                                                                                              32_MiB} {}

MEMSAVER_INLINE Room FileStore::grow(std::size_t bytes, const LiveSet& live) {
    error_prefix_ = of_tag(live.tag);
    share_.join(live.host_budget);
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

MEMSAVER_INLINE void FileStore::discard(std::uint64_t location, std::size_t bytes) noexcept {
    if (options_.observer) options_.observer->discarded(location, bytes);
    forget_half_changed(location, bytes);
    if (!file_.owns()) return;
    (void)driver_.punch_file(file_.get(), location - page, bytes);
    punched_ = true;
}

MEMSAVER_INLINE void FileStore::take_room(const std::vector<Unit>& units) {
    if (!punched_) return; // `grow` allocated all of it
    for (const Unit& unit : units) {
        const std::uint64_t begin = align_down(unit.location, page);
        const std::size_t bytes = align_up(unit.location + unit.bytes, page) - begin;
        const Status status = driver_.allocate_file(file_.get(), begin - page, bytes);
        if (!status.ok())
            raise_of(status, "allocate space in a backup file", {error_prefix_, in_bytes(bytes), " in ", directory_},
                     bytes);
    }
}

MEMSAVER_INLINE Status FileStore::clear() noexcept {
    if (options_.observer) options_.observer->discarded(page, size_);
    half_changed_.clear();
    punched_ = false;
    size_ = 0;
    const Status file = file_.close();
    return first_failure({file, share_.leave()});
}

MEMSAVER_INLINE void FileStore::prepare(std::vector<Unit> units) {
    take_room(units);
    prepare_ring(*share_.ring(), cut(std::move(units)), page, error_prefix_);
}

MEMSAVER_INLINE std::unique_ptr<Ticket::Work> FileStore::out(std::vector<Unit> units, const LiveSet& live) {
    error_prefix_ = of_tag(live.tag);
    take_room(units);
    return start(Direction::out, std::move(units), live);
}

MEMSAVER_INLINE std::unique_ptr<Ticket::Work> FileStore::in(std::vector<Unit> units, const LiveSet& live) {
    return start(Direction::in, std::move(units), live);
}

MEMSAVER_INLINE void FileStore::compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) {
    share_.join(live.host_budget);
    compare_with(*this, driver_, units, cut(units), share_.ring(), options_.crew, live.tag);
}

MEMSAVER_INLINE void FileStore::change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) {
    const std::uint64_t first = unit.location + offset;
    const auto copy =
        share_.copy(std::min(options_.observer ? unit.bytes : bytes, share_.buffer_bytes()) + 2 * page, error_prefix_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a host address
    auto* const data = reinterpret_cast<std::byte*>(copy->address());
    each_unit_in(cut({unit}), first, bytes, [&](const Unit& part) {
        const std::uint64_t begin = std::max(part.location, first);
        const std::uint64_t end = std::min(part.location + part.bytes, first + bytes);
        // With an observer, reads and writes whole parts; otherwise only the pages that change.
        const std::uint64_t from_page = align_down(options_.observer ? part.location : begin, page);
        const std::uint64_t to_page = align_up(options_.observer ? part.location + part.bytes : end, page);
        const auto span = static_cast<std::size_t>(to_page - from_page);
        check_file(get(data, from_page, span), "read a backup file", bytes);
        const bool checked = options_.observer && half_changed_.count(part.location) == 0;
        if (checked && !replaced_whole(part, first, bytes)) {
            options_.observer->restoring(part, data + (part.location - from_page));
        }
        std::memcpy(data + (begin - from_page), from + (begin - first), end - begin);
        if (options_.observer) half_changed_.insert(part.location);
        check_file(put(data, from_page, span), "write a backup file", bytes);
        if (options_.observer) options_.observer->saved(part, data + (part.location - from_page));
        half_changed_.erase(part.location);
    });
}

MEMSAVER_INLINE void FileStore::check_file(const Status& status, const Attempt& attempt, std::size_t bytes) const {
    if (!status.ok()) raise_of(status, attempt, {error_prefix_, in_bytes(bytes)}, bytes);
}

MEMSAVER_INLINE BackupView FileStore::view(std::uint64_t location, std::size_t bytes) const {
    const std::uint64_t begin = location - location % page;
    const std::size_t span = align_up(location + bytes, page) - begin;
    const auto copy = share_.copy(span, error_prefix_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a host address
    auto* const data = reinterpret_cast<std::byte*>(copy->address());
    const Status status = get(data, begin, span);
    if (!status.ok()) raise_of(status, "read a backup file", {error_prefix_, in_bytes(bytes)});
    return {copy, data + (location - begin), bytes};
}

MEMSAVER_INLINE Status FileStore::put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept {
    return driver_.write_file(file_.get(), from, bytes, location - page);
}

MEMSAVER_INLINE Status FileStore::get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
    return driver_.read_file(file_.get(), to, bytes, location - page);
}

MEMSAVER_INLINE std::vector<Piece> FileStore::cut(std::vector<Unit> units, const std::vector<Range>& first) const {
    return cut_in_wanted_order(cut_for_observer(std::move(units), options_, driver_), share_.buffer_bytes(), first,
                               !options_.observer, [](const Unit&, const Unit&) { return false; });
}

MEMSAVER_INLINE std::unique_ptr<Ticket::Work> FileStore::start(Direction direction, std::vector<Unit> units,
                                                               const LiveSet& live) {
    if (options_.observer) options_.observer->about(live.tag);
    share_.join(live.host_budget);
    for (const Unit& unit : units) { // the save computes new checksums
        if (direction == Direction::in) break;
        forget_half_changed(unit.location, unit.bytes);
    }
    const std::vector<Range> none;
    const std::vector<Range>& first = direction == Direction::in ? live.first : none;
    auto work = std::make_unique<RingTransfer>(CopyLane{driver_, direction}, cut(std::move(units), first), *this,
                                               share_.ring(), options_.crew, options_.observer.get(), live.progress,
                                               of_tag(live.tag), live.before_write);
    work->start();
    return work;
}

} // namespace detail

} // namespace memsaver::inline v0_3
