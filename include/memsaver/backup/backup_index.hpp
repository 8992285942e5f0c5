// Records which blocks a StoredSlot keeps, and where.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Shared by a slot and its tickets. `forget` may be called at any time under locks of the arena: it only records that
/// the block is gone, and the mutex, which guards what it touches, is held for bookkeeping only. Everything else,
/// including the store and its free space, belongs to the thread that runs the slot's operation.
class BackupIndex {
public:
    struct Entry {
        std::uint64_t serial = 0; ///< of the block
        Address device = 0;       ///< address of the block, once it was saved
        std::uint64_t location = 0;
        std::size_t bytes = 0;
        bool saved = false;     ///< the place holds the block's bytes
        bool fresh = false;     ///< up to date, as far as the program has told
        bool forgotten = false; ///< the block is gone, but its place is not free yet
    };
    BackupIndex(std::shared_ptr<BackupStore> place, StoredSlotOptions how)
        : store{std::move(place)}, options{how}, space{store->alignment()} {}

    /// Not inlined: clang would make four copies of a growing list.
    [[gnu::noinline]] void add_unit(const LiveBlock& block, Vector<Unit>& units) const {
        units.push_back({block.address, find(block.serial)->location, block.bytes});
    }

    /// Returns the first entry that does not belong to an earlier block.
    [[nodiscard]] Vector<Entry>::const_iterator at_or_after(std::uint64_t serial) const noexcept {
        return std::partition_point(entries.begin(), entries.end(),
                                    [&](const Entry& each) { return each.serial < serial; });
    }
    [[nodiscard]] const Entry* find(std::uint64_t serial) const noexcept {
        const auto entry = at_or_after(serial);
        return entry != entries.end() && entry->serial == serial ? &*entry : nullptr;
    }
    [[nodiscard]] Entry* find(std::uint64_t serial) noexcept {
        return const_cast<Entry*>(std::as_const(*this).find(serial));
    }
    /// Returns where a block's place is, or 0 if it has none, or, for `saved`, if nothing is saved there. Locks.
    [[nodiscard]] std::uint64_t location_of(std::uint64_t serial, bool saved) {
        const std::lock_guard lock{mutex};
        const Entry* const entry = find(serial);
        return entry != nullptr && (entry->saved || !saved) ? entry->location : 0;
    }
    /// As `location_of`, for saved bytes. Throws Misuse if there are none.
    [[nodiscard]] std::uint64_t saved_at(std::uint64_t serial) {
        const std::uint64_t location = location_of(serial, true);
        if (location == 0) misuse({"this block has no complete backup"});
        return location;
    }

    /// Adds an entry for each block that has none. Strong exception guarantee: may throw bad_alloc.
    void add(const std::vector<LiveBlock>& blocks) {
        Vector<Entry> all;
        for (const LiveBlock& block : blocks) {
            if (find(block.serial) != nullptr) continue;
            if (all.empty()) all = entries;
            all.emplace_back().serial = block.serial;
        }
        if (all.empty()) return;
        sort_by(all, [](const Entry& each) { return each.serial; });
        entries.swap(all);
    }

    void unsave(Entry& entry) noexcept {
        if (entry.saved) saved_bytes -= entry.bytes;
        entry.saved = false;
    }
    /// Gives a place to every block that has none. If it throws, some may still have none.
    void place(const std::vector<LiveBlock>& blocks, const LiveSet& live) {
        for (;;) {
            std::size_t missing = 0;
            {
                const std::lock_guard lock{mutex};
                add(blocks);
                for (const LiveBlock& block : blocks) {
                    Entry& entry = *find(block.serial);
                    if (entry.location != 0 || entry.forgotten) continue;
                    entry.bytes = block.bytes;
                    entry.location = space.take(block.bytes, block.address, missing);
                }
            }
            if (missing == 0) return;
            space.grow(*store, missing, live);
        }
    }
    /// Frees the places of blocks that are gone, and storage that is entirely free. No-op while a transfer runs. Slow
    /// steps run without the mutex. May throw bad_alloc: a later call frees the rest.
    void sweep() {
        {
            const std::lock_guard lock{mutex};
            if (under_way != 0) return;
            freed_places.reserve(freed_places.size() + forgotten);
            if (forgotten != 0) {
                erase_in(entries, [&](const Entry& each) {
                    if (each.forgotten && each.location != 0)
                        freed_places.push_back(space.around(each.location, each.bytes));
                    return each.forgotten;
                });
            }
            forgotten = 0;
        }
        (void)store->retry();
        for (; !freed_places.empty(); freed_places.pop_back()) {
            freed = true;
            store->discard(freed_places.back().location, freed_places.back().bytes);
            space.give(freed_places.back().location, freed_places.back().bytes);
        }
        if (std::exchange(freed, false)) store->shrink(space);
    }
    /// Drops everything. Returns the first failure to free storage.
    Status clear() noexcept {
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

    std::shared_ptr<BackupStore> store;
    StoredSlotOptions options;
    LocationSpace space;
    Vector<Room> freed_places; ///< of blocks that are gone; not free yet
    bool freed = false;        ///< some of the store's space, since it was last shrunk
    std::mutex mutex;          // guards the members below
    Vector<Entry> entries;     // by serial
    std::size_t forgotten = 0; ///< entries whose block is gone
    std::size_t under_way = 0; ///< running transfers and preparations; while there are any, no place is freed
    std::atomic<std::size_t> saved_bytes{0};

    /// For as long as it lives, places of blocks that are given up are not freed. The constructor sweeps.
    class OperationGuard {
    public:
        explicit OperationGuard(std::shared_ptr<BackupIndex> index) : index_{std::move(index)} {
            index_->sweep();
            const std::lock_guard lock{index_->mutex};
            index_->under_way += 1;
        }
        OperationGuard& operator=(OperationGuard&&) = delete;
        ~OperationGuard() {
            const std::lock_guard lock{index_->mutex};
            index_->under_way -= 1;
        }

        [[nodiscard]] BackupIndex& index() const noexcept { return *index_; }

    private:
        std::shared_ptr<BackupIndex> index_;
    };
};

} // namespace memsaver::inline v0_3::detail
