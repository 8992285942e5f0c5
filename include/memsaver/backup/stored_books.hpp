// Which blocks a StoredSlot has kept, and where.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/backup/ticket.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Shared by a slot and its tickets. `forget` may come at any time, under locks of the arena: so it only notes what is
/// gone, and the mutex, which guards what it touches, is held for bookkeeping alone. Everything else, the store and the
/// free space in it, belongs to whoever has the slot's operation, one thread at a time.
class StoredBooks {
public:
    struct Entry {
        Address device = 0; ///< of the block, once it has been saved
        std::uint64_t location = 0;
        std::size_t bytes = 0;
        std::size_t skipped = 0; ///< of the place, before the location
        bool saved = false;      ///< the place holds the block's bytes
        bool fresh = false;      ///< as the program left them, as far as it has told
        bool partly = false;     ///< just those of its bytes that are away
        bool forgotten = false;  ///< the block is gone; the place is not free yet
    };
    /// A part of the room, as its block has it.
    struct Place {
        std::uint64_t location = 0;
        std::size_t bytes = 0;
    };
    using Entries = std::unordered_map<std::uint64_t, Entry>;

    StoredBooks(std::shared_ptr<BackupStore> place, StoredSlotOptions how) : store{std::move(place)}, options{how} {}

    [[nodiscard]] Unit unit(const LiveBlock& block) const;
    /// The units of the parts of a block that are mapped. Answers their bytes.
    std::size_t add_mapped(const LiveBlock& block, const LiveSet& live, std::vector<Unit>& units) const;

    [[nodiscard]] std::size_t room(const Entry& entry) const noexcept;
    void unsave(Entry& entry) noexcept;
    /// Gives every block a place that has none. If it throws, some may still have none.
    void place(const std::vector<LiveBlock>& blocks, const LiveSet& live);
    /// Answers the room that is missing.
    std::size_t place_in_free_room(const std::vector<LiveBlock>& blocks);
    /// Frees the places of blocks that are gone, and gives back what room is free as a whole; not while a transfer is
    /// under way. Takes its time, without the mutex. May throw bad_alloc: the rest is swept later.
    void sweep();
    /// Nothing is kept any more. Answers what could not be given back.
    Status clear() noexcept;

    std::shared_ptr<BackupStore> store;
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
        explicit UnderWay(std::shared_ptr<StoredBooks> books);
        UnderWay(UnderWay&&) noexcept = default;
        UnderWay& operator=(UnderWay&&) = delete;
        ~UnderWay();

    private:
        std::shared_ptr<StoredBooks> books_;
    };
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/stored_books.ipp"
#endif
