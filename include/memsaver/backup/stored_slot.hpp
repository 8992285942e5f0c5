// The slot of policies that keep bytes somewhere. Knows which blocks are kept and where; not what the place is.
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
/// - `grow(bytes)`: more Room. May throw. `shrink(space)`: gives back room that is free as a whole.
/// - `clear()`: gives all room back. `discard(location, bytes)`: these bytes are not needed any more.
/// - `prepare(units)`: takes ahead of time what saving would take. May throw.
/// - `out(units, live)`, `in(units, live)`: start a transfer. `compare(units, live)`: throws where bytes differ.
/// - `view(location, bytes)`: host memory with these bytes, and what keeps it alive.
template <class Store>
class StoredSlot {
public:
    StoredSlot(std::shared_ptr<Store> store, StoredSlotOptions options)
        : books_{std::make_shared<Books>(std::move(store), options)} {}

    void prepare(const LiveSet& live) {
        std::vector<Unit> units;
        {
            const std::lock_guard lock{books_->mutex};
            books_->sweep();
            const std::vector<LiveBlock> blocks = sorted(live);
            books_->place(blocks);
            for (const LiveBlock& block : blocks) units.push_back(books_->unit(block));
        }
        books_->store->prepare(std::move(units));
    }

    Ticket save(const LiveSet& live) {
        std::vector<Unit> units;
        std::vector<Unit> unchanged;
        std::vector<std::uint64_t> serials;
        {
            const std::lock_guard lock{books_->mutex};
            books_->sweep();
            const std::vector<LiveBlock> blocks = sorted(live);
            books_->place(blocks);
            units.reserve(blocks.size());
            serials.reserve(blocks.size());
            for (const LiveBlock& block : blocks) {
                Entry& entry = books_->entries.at(block.serial);
                if (entry.saved && entry.fresh && books_->options.refresh == Refresh::once) {
                    if (books_->options.check) books_->add_mapped(block, live, unchanged);
                    continue;
                }
                // From here on the place is being written. Where a pause once failed halfway, a part of the block may
                // be away already: that part's bytes stay good.
                if (books_->add_mapped(block, live, units) == block.bytes) books_->unsave(entry);
                serials.push_back(block.serial);
            }
            books_->busy = true;
        }
        return begin(units, live, std::move(serials), [&] {
            if (!unchanged.empty()) books_->store->compare(std::move(unchanged), live);
            return books_->store->out(units, live);
        });
    }

    Ticket restore(const LiveSet& live) {
        std::vector<Unit> units;
        {
            const std::lock_guard lock{books_->mutex};
            books_->sweep();
            for (const LiveBlock& block : sorted(live)) {
                const auto entry = books_->entries.find(block.serial);
                if (entry != books_->entries.end() && entry->second.saved) books_->add_mapped(block, live, units);
            }
            books_->busy = true;
        }
        return begin(units, live, {}, [&] { return books_->store->in(units, live); });
    }

    void resumed() noexcept {
        const std::lock_guard lock{books_->mutex};
        try {
            books_->sweep();
        } catch (const std::bad_alloc&) { // swept later
        }
        if (books_->options.retain || books_->options.refresh == Refresh::once) return;
        books_->entries.clear();
        books_->space.clear();
        books_->saved_bytes = 0;
        books_->store->clear();
    }

    void forget(std::uint64_t serial) noexcept {
        const std::lock_guard lock{books_->mutex};
        const auto entry = books_->entries.find(serial);
        if (entry == books_->entries.end()) return;
        books_->unsave(entry->second);
        entry->second.forgotten = true;
        books_->any_forgotten = true;
        if (books_->busy) return; // its place may be in use
        try {
            books_->forget(entry);
        } catch (const std::bad_alloc&) { // swept later
        }
    }

    void invalidate() noexcept {
        const std::lock_guard lock{books_->mutex};
        for (auto& [serial, entry] : books_->entries) entry.fresh = false;
    }

    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return books_->saved_bytes.load(); }

    /// The kept bytes of a part of a block. Throws what reading them may throw; Misuse if there are none.
    [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
        const std::lock_guard lock{books_->mutex};
        const auto entry = books_->entries.find(serial);
        if (entry == books_->entries.end() || !entry->second.saved) {
            throw Misuse{"backup_view: nothing is kept of this block now"};
        }
        return books_->store->view(entry->second.location + offset, bytes);
    }

private:
    struct Entry {
        std::uint64_t location = 0;
        std::size_t bytes = 0;
        bool saved = false;     ///< the place holds the block's bytes
        bool fresh = false;     ///< as the program left them, as far as it has told
        bool forgotten = false; ///< the block is gone; the place is not free yet
    };
    using Entries = std::unordered_map<std::uint64_t, Entry>;

    /// Shared with the tickets. Everything is guarded by the mutex but the store, whose transfers lock for themselves.
    struct Books {
        Books(std::shared_ptr<Store> place, StoredSlotOptions how) : store{std::move(place)}, options{how} {}

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
        static std::size_t room(std::size_t bytes) noexcept { return align_up(bytes, Store::alignment); }

        void unsave(Entry& entry) noexcept {
            if (entry.saved) saved_bytes -= entry.bytes;
            entry.saved = false;
        }
        /// Gives every block a place. On failure those that had none have none.
        void place(const std::vector<LiveBlock>& blocks) {
            std::vector<std::uint64_t> fresh;
            try {
                std::vector<const LiveBlock*> homeless;
                std::size_t missing = 0;
                for (const LiveBlock& block : blocks) {
                    const auto [entry, added] = entries.try_emplace(block.serial);
                    if (!added) continue;
                    fresh.push_back(block.serial);
                    entry->second.bytes = block.bytes;
                    entry->second.location = space.take(room(block.bytes));
                    if (entry->second.location != 0) continue;
                    homeless.push_back(&block);
                    missing += room(block.bytes);
                }
                if (missing == 0) return;
                const Room room_made = store->grow(missing);
                space.add(room_made.location, room_made.bytes);
                for (const LiveBlock* block : homeless)
                    entries.at(block->serial).location = space.take(room(block->bytes));
            } catch (...) {
                for (const std::uint64_t serial : fresh) {
                    const auto entry = entries.find(serial);
                    if (entry->second.location != 0) space.give(entry->second.location, room(entry->second.bytes));
                    entries.erase(entry);
                }
                throw;
            }
        }
        typename Entries::iterator forget(typename Entries::iterator entry) {
            store->discard(entry->second.location, room(entry->second.bytes));
            space.give(entry->second.location, room(entry->second.bytes));
            return entries.erase(entry);
        }
        /// Frees the places of blocks that are gone, and gives back what room is free as a whole.
        void sweep() {
            if (!any_forgotten) return;
            for (auto entry = entries.begin(); entry != entries.end();) {
                entry = entry->second.forgotten ? forget(entry) : std::next(entry);
            }
            any_forgotten = false;
            store->shrink(space);
        }

        std::shared_ptr<Store> store;
        StoredSlotOptions options;
        std::mutex mutex;
        Entries entries;
        LocationSpace space;
        bool busy = false; ///< a transfer is under way
        bool any_forgotten = false;
        std::atomic<std::size_t> saved_bytes{0};
    };

    /// A transfer that notes its end in the books.
    class NotedWork final : public Ticket::Work {
    public:
        NotedWork(std::shared_ptr<Books> books, std::unique_ptr<Ticket::Work> work, std::vector<std::uint64_t> serials)
            : books_{std::move(books)}, work_{std::move(work)}, serials_{std::move(serials)} {}
        ~NotedWork() override {
            work_.reset(); // waits
            const std::lock_guard lock{books_->mutex};
            books_->busy = false;
        }
        Status query(bool& done) noexcept override { return work_->query(done); }
        Status follow(StreamRef stream, Range range) noexcept override { return work_->follow(stream, range); }
        Status wait() override {
            const Status status = work_->wait();
            if (!status.ok()) return status;
            const std::lock_guard lock{books_->mutex};
            for (const std::uint64_t serial : serials_) {
                const auto entry = books_->entries.find(serial);
                if (entry == books_->entries.end() || entry->second.forgotten) continue;
                entry->second.saved = entry->second.fresh = true;
                books_->saved_bytes += entry->second.bytes;
            }
            serials_.clear();
            return status;
        }

    private:
        std::shared_ptr<Books> books_;
        std::unique_ptr<Ticket::Work> work_;
        std::vector<std::uint64_t> serials_; // saved, once it is done
    };

    template <class Start>
    Ticket begin(const std::vector<Unit>& units, const LiveSet&, std::vector<std::uint64_t> serials, Start&& start) {
        std::size_t bytes = 0;
        for (const Unit& unit : units) bytes += unit.bytes;
        try {
            std::unique_ptr<Ticket::Work> work = start();
            return Ticket{std::make_unique<NotedWork>(books_, std::move(work), std::move(serials)), bytes};
        } catch (...) {
            const std::lock_guard lock{books_->mutex};
            books_->busy = false;
            throw;
        }
    }
    static std::vector<LiveBlock> sorted(const LiveSet& live) {
        std::vector<LiveBlock> blocks = live.blocks();
        std::sort(blocks.begin(), blocks.end(),
                  [](const LiveBlock& a, const LiveBlock& b) { return a.address < b.address; });
        return blocks;
    }

    std::shared_ptr<Books> books_;
};

} // namespace memsaver::inline v0_1
