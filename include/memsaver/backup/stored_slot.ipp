// Definitions of stored_slot.hpp.
#pragma once

#include "memsaver/backup/stored_slot.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE Unit StoredBooks::unit(const LiveBlock& block) const {
    return {block.address, entries.at(block.serial).location, block.bytes};
}

MEMSAVER_INLINE std::size_t StoredBooks::add_mapped(const LiveBlock& block, const LiveSet& live,
                                                    std::vector<Unit>& units) const {
    const Unit whole = unit(block);
    std::size_t bytes = 0;
    auto extent = std::upper_bound(live.extents.begin(), live.extents.end(), block.address,
                                   [](Address a, const Range& range) { return a < range.end(); });
    for (; extent != live.extents.end() && extent->address < block.address + block.bytes; ++extent) {
        const Address begin = std::max(block.address, extent->address);
        const Address end = std::min(block.address + block.bytes, extent->end());
        if (bytes != 0 && units.back().device + units.back().bytes == begin) {
            units.back().bytes += end - begin; // extents that are neighbours
        } else {
            units.push_back({begin, whole.location + (begin - block.address), end - begin});
        }
        bytes += end - begin;
    }
    return bytes;
}

MEMSAVER_INLINE std::size_t StoredBooks::room(const Entry& entry) const noexcept {
    return align_up(entry.skipped + entry.bytes, store->alignment());
}

MEMSAVER_INLINE void StoredBooks::unsave(Entry& entry) noexcept {
    if (entry.saved) saved_bytes -= entry.bytes;
    entry.saved = false;
}

MEMSAVER_INLINE void StoredBooks::place(const std::vector<LiveBlock>& blocks, const LiveSet& live) {
    while (const std::size_t missing = place_in_free_room(blocks)) {
        if (made.bytes == 0) made = store->grow(missing, live);
        space.add(made.location, made.bytes);
        made = {};
    }
}

MEMSAVER_INLINE std::size_t StoredBooks::place_in_free_room(const std::vector<LiveBlock>& blocks) {
    const std::lock_guard lock{mutex};
    std::size_t missing = 0;
    for (const LiveBlock& block : blocks) {
        Entry& entry = entries[block.serial];
        if (entry.location != 0 || entry.forgotten) continue;
        entry.bytes = block.bytes;
        // As far into its first unit of alignment as on the device: where the device's memory is parted, at
        // multiples of more than that, the place can be parted too.
        entry.skipped = static_cast<std::size_t>(block.address % store->alignment());
        const std::uint64_t place = space.take(room(entry));
        if (place != 0) entry.location = place + entry.skipped;
        if (place == 0) missing += room(entry);
    }
    return missing;
}

MEMSAVER_INLINE void StoredBooks::sweep() {
    {
        const std::lock_guard lock{mutex};
        if (under_way != 0) return;
        leaving.reserve(leaving.size() + forgotten);
        for (auto entry = entries.begin(); forgotten != 0 && entry != entries.end();) {
            const Entry& each = entry->second;
            if (!each.forgotten) {
                ++entry;
                continue;
            }
            if (each.location != 0) leaving.push_back({each.location - each.skipped, room(each)});
            entry = entries.erase(entry);
            forgotten -= 1;
        }
    }
    (void)store->retry();
    if (leaving.empty()) return;
    for (; !leaving.empty(); leaving.pop_back()) {
        space.give(leaving.back().location, leaving.back().bytes);
        store->discard(leaving.back().location, leaving.back().bytes);
    }
    store->shrink(space);
}

MEMSAVER_INLINE Status StoredBooks::clear() noexcept {
    {
        const std::lock_guard lock{mutex};
        entries.clear();
        forgotten = 0;
        saved_bytes = 0;
    }
    leaving.clear();
    made = {};
    space.clear();
    return store->clear();
}

MEMSAVER_INLINE StoredBooks::UnderWay::UnderWay(std::shared_ptr<StoredBooks> books) : books_{std::move(books)} {
    books_->sweep();
    const std::lock_guard lock{books_->mutex};
    books_->under_way += 1;
}

MEMSAVER_INLINE StoredBooks::UnderWay::~UnderWay() {
    if (!books_) return;
    const std::lock_guard lock{books_->mutex};
    books_->under_way -= 1;
}

MEMSAVER_INLINE void StoredSlot::prepare(const LiveSet& live) {
    const UnderWay under_way{books_};
    const std::vector<LiveBlock> blocks = sorted(live);
    books_->place(blocks, live);
    std::vector<Unit> units;
    units.reserve(blocks.size());
    {
        const std::lock_guard lock{books_->mutex};
        for (const LiveBlock& block : blocks) {
            if (!books_->entries.at(block.serial).forgotten) units.push_back(books_->unit(block));
        }
    }
    books_->store->prepare(std::move(units));
}

MEMSAVER_INLINE Ticket StoredSlot::save(const LiveSet& live) {
    UnderWay under_way{books_};
    const std::vector<LiveBlock> blocks = sorted(live);
    books_->place(blocks, live);
    std::vector<Unit> units;
    std::vector<Unit> unchanged;
    std::vector<Saved> saved;
    units.reserve(blocks.size());
    saved.reserve(blocks.size());
    {
        const std::lock_guard lock{books_->mutex};
        for (const LiveBlock& block : blocks) {
            Entry& entry = books_->entries.at(block.serial);
            if (entry.forgotten) continue;
            if (entry.saved && entry.fresh && books_->options.refresh == Refresh::once) {
                if (books_->options.check) books_->add_mapped(block, live, unchanged);
                continue;
            }
            // From here on the place is being written. Where a pause once failed halfway, a part of the block may
            // be away already: that part's bytes stay good.
            const bool whole = books_->add_mapped(block, live, units) == block.bytes;
            if (whole) books_->unsave(entry);
            saved.push_back({block.serial, whole});
        }
    }
    if (!unchanged.empty()) books_->store->compare(std::move(unchanged), live);
    return ticket(books_->store->out(units, live), units, std::move(saved), std::move(under_way));
}

MEMSAVER_INLINE Ticket StoredSlot::restore(const LiveSet& live) {
    UnderWay under_way{books_};
    const std::vector<LiveBlock> blocks = sorted(live);
    std::vector<Unit> units;
    units.reserve(blocks.size());
    {
        const std::lock_guard lock{books_->mutex};
        for (const LiveBlock& block : blocks) {
            const auto entry = books_->entries.find(block.serial);
            if (entry != books_->entries.end() && entry->second.saved) books_->add_mapped(block, live, units);
        }
    }
    return ticket(books_->store->in(units, live), units, {}, std::move(under_way));
}

MEMSAVER_INLINE Status StoredSlot::resumed() noexcept {
    if (!books_->options.retain && books_->options.refresh != Refresh::once) return books_->clear();
    try {
        books_->sweep();
    } catch (const std::bad_alloc&) { // swept later
    }
    return books_->store->retry();
}

MEMSAVER_INLINE void StoredSlot::forget(std::uint64_t serial) noexcept {
    const std::lock_guard lock{books_->mutex};
    try {
        auto entry = books_->entries.find(serial);
        if (entry == books_->entries.end()) {
            if (books_->under_way == 0) return;
            entry = books_->entries.try_emplace(serial).first; // whoever is about to give it a place must know
        }
        if (std::exchange(entry->second.forgotten, true)) return;
        books_->unsave(entry->second);
        books_->forgotten += 1;
    } catch (const std::bad_alloc&) { // given a place for nothing
    }
}

MEMSAVER_INLINE void StoredSlot::invalidate() noexcept {
    const std::lock_guard lock{books_->mutex};
    for (auto& [serial, entry] : books_->entries) entry.fresh = false;
}

MEMSAVER_INLINE BackupView StoredSlot::view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
    std::uint64_t location = 0;
    {
        const std::lock_guard lock{books_->mutex};
        const auto entry = books_->entries.find(serial);
        if (entry != books_->entries.end() && entry->second.saved) location = entry->second.location + offset;
    }
    if (location == 0) throw Misuse{"nothing is kept of this block now"};
    return books_->store->view(location, bytes); // a place is not free before the next operation
}

MEMSAVER_INLINE StoredSlot::NotedWork::NotedWork(std::shared_ptr<Books> books, UnderWay under_way,
                                                 std::unique_ptr<Ticket::Work> work, std::vector<Saved> saved)
    : books_{std::move(books)}, under_way_{std::move(under_way)}, work_{std::move(work)}, saved_{std::move(saved)} {}

MEMSAVER_INLINE Status StoredSlot::NotedWork::wait() {
    const Status status = work_->wait();
    if (!status.ok()) return status;
    const std::lock_guard lock{books_->mutex};
    for (const auto& [serial, whole] : saved_) {
        const auto entry = books_->entries.find(serial);
        if (entry == books_->entries.end() || entry->second.forgotten) continue;
        if (!entry->second.saved) books_->saved_bytes += entry->second.bytes;
        entry->second.saved = true;
        entry->second.fresh = whole;
    }
    saved_.clear();
    return status;
}

MEMSAVER_INLINE Ticket StoredSlot::ticket(std::unique_ptr<Ticket::Work> work, const std::vector<Unit>& units,
                                          std::vector<Saved> saved, UnderWay under_way) {
    std::size_t bytes = 0;
    for (const Unit& unit : units) bytes += unit.bytes;
    return {std::make_unique<NotedWork>(books_, std::move(under_way), std::move(work), std::move(saved)), bytes};
}

MEMSAVER_INLINE std::vector<LiveBlock> StoredSlot::sorted(const LiveSet& live) {
    std::vector<LiveBlock> blocks = live.blocks();
    std::sort(blocks.begin(), blocks.end(),
              [](const LiveBlock& a, const LiveBlock& b) { return a.address < b.address; });
    return blocks;
}

} // namespace detail

} // namespace memsaver::inline v0_2
