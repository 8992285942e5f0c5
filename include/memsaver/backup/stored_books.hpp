// The books of a StoredSlot: which blocks are kept, and where. Knows the place only as something that has room.
#pragma once

#include "memsaver/backup/backup_concept.hpp"
#include "memsaver/backup/location_space.hpp"
#include "memsaver/backup/store_options.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// When bytes are saved: at every pause, or once, and again after `invalidate`.
enum class Refresh : unsigned char { every_pause, once };

/// How a StoredSlot behaves.
struct StoredSlotOptions {
    Refresh refresh = Refresh::every_pause;
    bool retain = true; ///< the room is kept after a resume, for the next pause
    bool check = false; ///< with Refresh::once: every pause compares what it would not save, and refuses if it differs
};

/// `Store`, a place with room for bytes (backup/host_store.hpp, backup/file_store.hpp):
///
/// - `Store::alignment`: of locations and of room, a power of two.
/// - `grow(bytes, live)`: more Room. May throw. `discard(location, bytes)`: these bytes are not needed any more.
/// - `shrink(space)`: gives back room that is free as a whole. May throw bad_alloc. `clear()`: gives all room back.
/// - `retry()`: tries again to give back what could not be; `clear` does so too. Both answer the first failure.
/// - `prepare(units)`: takes ahead of time what saving would take. May throw.
/// - `out(units, live)`, `in(units, live)`: start a transfer. `compare(units, live)`: throws where bytes differ.
/// - `view(location, bytes)`: host memory with these bytes, and what keeps it alive.
///
/// Shared by a slot and its tickets. `forget` may come at any time, under locks of the arena: so it only notes what is
/// gone, and the mutex, which guards what it touches, is held for bookkeeping alone. Everything else, the store and the
/// free space in it, belongs to whoever has the slot's operation, one thread at a time.
template <class Store>
class StoredBooks {
public:
    struct Entry {
        std::uint64_t location = 0;
        std::size_t bytes = 0;
        std::size_t skipped = 0; ///< of the place, before the location
        bool saved = false;      ///< the place holds the block's bytes
        bool fresh = false;      ///< as the program left them, as far as it has told
        bool forgotten = false;  ///< the block is gone; the place is not free yet
    };
    /// A part of the room, as its block has it.
    struct Place {
        std::uint64_t location = 0;
        std::size_t bytes = 0;
    };
    using Entries = std::unordered_map<std::uint64_t, Entry>;

    StoredBooks(std::shared_ptr<Store> place, StoredSlotOptions how) : store{std::move(place)}, options{how} {}

    [[nodiscard]] Unit unit(const LiveBlock& block) const {
        return {block.address, entries.at(block.serial).location, block.bytes};
    }
    /// The units of the parts of a block that are mapped. Answers their bytes.
    std::size_t add_mapped(const LiveBlock& block, const LiveSet& live, std::vector<Unit>& units) const {
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

    static std::size_t room(const Entry& entry) noexcept {
        return align_up(entry.skipped + entry.bytes, Store::alignment);
    }
    void unsave(Entry& entry) noexcept {
        if (entry.saved) saved_bytes -= entry.bytes;
        entry.saved = false;
    }
    /// Gives every block a place that has none. If it throws, some may still have none.
    void place(const std::vector<LiveBlock>& blocks, const LiveSet& live) {
        while (const std::size_t missing = place_in_free_room(blocks)) {
            if (made.bytes == 0) made = store->grow(missing, live);
            space.add(made.location, made.bytes);
            made = {};
        }
    }
    /// Answers the room that is missing.
    std::size_t place_in_free_room(const std::vector<LiveBlock>& blocks) {
        const std::lock_guard lock{mutex};
        std::size_t missing = 0;
        for (const LiveBlock& block : blocks) {
            Entry& entry = entries[block.serial];
            if (entry.location != 0 || entry.forgotten) continue;
            entry.bytes = block.bytes;
            // As far into its first unit of alignment as on the device: where the device's memory is parted, at
            // multiples of more than that, the place can be parted too.
            entry.skipped = static_cast<std::size_t>(block.address % Store::alignment);
            const std::uint64_t place = space.take(room(entry));
            if (place != 0) entry.location = place + entry.skipped;
            if (place == 0) missing += room(entry);
        }
        return missing;
    }
    /// Frees the places of blocks that are gone, and gives back what room is free as a whole; not while a transfer is
    /// under way. Takes its time, without the mutex. May throw bad_alloc: the rest is swept later.
    void sweep() {
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
    /// Nothing is kept any more. Answers what could not be given back.
    Status clear() noexcept {
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

    std::shared_ptr<Store> store;
    StoredSlotOptions options;
    LocationSpace space;
    std::vector<Place> leaving; ///< of blocks that are gone, not free yet
    Room made;                  ///< room that the space has no memory to note so far
    std::mutex mutex;           // guards the rest
    Entries entries;
    std::size_t forgotten = 0; ///< entries whose block is gone
    std::size_t under_way = 0; ///< transfers, and what prepares them: places of blocks that are gone are not free
    std::atomic<std::size_t> saved_bytes{0};

    /// While it lives, places of blocks that are given up stay as they are. Sweeps at its beginning.
    class UnderWay {
    public:
        explicit UnderWay(std::shared_ptr<StoredBooks> books) : books_{std::move(books)} {
            books_->sweep();
            const std::lock_guard lock{books_->mutex};
            books_->under_way += 1;
        }
        UnderWay(UnderWay&&) noexcept = default;
        UnderWay& operator=(UnderWay&&) = delete;
        ~UnderWay() {
            if (!books_) return;
            const std::lock_guard lock{books_->mutex};
            books_->under_way -= 1;
        }

    private:
        std::shared_ptr<StoredBooks> books_;
    };
};

} // namespace memsaver::inline v0_1
