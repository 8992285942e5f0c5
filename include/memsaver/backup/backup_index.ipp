// Definitions of backup_index.hpp.
#pragma once

#include "memsaver/backup/backup_index.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Unit BackupIndex::unit(const LiveBlock& block) const {
    return {block.address, entries.at(block.serial).location, block.bytes};
}

MEMSAVER_INLINE std::size_t BackupIndex::add_mapped(const LiveBlock& block, const LiveSet& live,
                                                    std::vector<Unit>& units) const {
    const Unit whole = unit(block);
    std::size_t bytes = 0;
    auto extent = std::upper_bound(live.extents.begin(), live.extents.end(), block.address,
                                   [](Address a, const Range& range) { return a < range.end(); });
    for (; extent != live.extents.end() && extent->address < block.address + block.bytes; ++extent) {
        const Address begin = std::max(block.address, extent->address);
        const Address end = std::min(block.address + block.bytes, extent->end());
        if (bytes != 0 && units.back().device + units.back().bytes == begin) {
            units.back().bytes += end - begin; // adjacent extents
        } else {
            units.push_back({begin, whole.location + (begin - block.address), end - begin});
        }
        bytes += end - begin;
    }
    return bytes;
}

MEMSAVER_INLINE void BackupIndex::unsave(Entry& entry) noexcept {
    if (entry.saved) saved_bytes -= entry.bytes;
    entry.saved = false;
}

MEMSAVER_INLINE void BackupIndex::place(const std::vector<LiveBlock>& blocks, const LiveSet& live) {
    for (;;) {
        std::size_t missing = 0;
        {
            const std::lock_guard lock{mutex};
            for (const LiveBlock& block : blocks) {
                Entry& entry = entries[block.serial];
                if (entry.location != 0 || entry.forgotten) continue;
                entry.bytes = block.bytes;
                entry.location = space.take(block.bytes, block.address, missing);
            }
        }
        if (missing == 0) return;
        space.grow(*store, missing, live);
    }
}

MEMSAVER_INLINE void BackupIndex::sweep() {
    {
        const std::lock_guard lock{mutex};
        if (under_way != 0) return;
        freed_places.reserve(freed_places.size() + forgotten);
        for (auto entry = entries.begin(); forgotten != 0 && entry != entries.end();) {
            const Entry& each = entry->second;
            if (!each.forgotten) {
                ++entry;
                continue;
            }
            if (each.location != 0) freed_places.push_back(space.around(each.location, each.bytes));
            entry = entries.erase(entry);
            forgotten -= 1;
        }
    }
    (void)store->retry();
    for (; !freed_places.empty(); freed_places.pop_back()) {
        freed = true;
        store->discard(freed_places.back().location, freed_places.back().bytes);
        space.give(freed_places.back().location, freed_places.back().bytes);
    }
    if (std::exchange(freed, false)) store->shrink(space);
}

MEMSAVER_INLINE Status BackupIndex::clear() noexcept {
    {
        const std::lock_guard lock{mutex};
        entries.clear();
        forgotten = 0;
        saved_bytes = 0;
    }
    freed_places.clear();
    space.clear();
    return store->clear();
}

MEMSAVER_INLINE BackupIndex::OperationGuard::OperationGuard(std::shared_ptr<BackupIndex> index)
    : index_{std::move(index)} {
    index_->sweep();
    const std::lock_guard lock{index_->mutex};
    index_->under_way += 1;
}

MEMSAVER_INLINE BackupIndex::OperationGuard::~OperationGuard() {
    const std::lock_guard lock{index_->mutex};
    index_->under_way -= 1;
}

} // namespace detail

} // namespace memsaver::inline v0_3
