// The slot of policies that keep bytes somewhere. Knows which blocks are kept and where; not what the place is.
#pragma once

#include "memsaver/backup/store.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

/// When bytes are saved: at every pause, or once, and again after `invalidate`.
enum class Refresh : unsigned char { every_pause, once };

namespace detail {

/// How a StoredSlot behaves.
struct StoredSlotOptions {
    Refresh refresh = Refresh::every_pause;
    bool retain = true; ///< the room is kept after a resume, for the next pause
    bool check = false; ///< with Refresh::once: every pause compares what it would not save, and refuses if it differs
};

/// Shared by a slot and its tickets. `forget` may come at any time, under locks of the arena: so it only notes what is
/// gone, and the mutex, which guards what it touches, is held for bookkeeping alone. Everything else, the store and the
/// free space in it, belongs to whoever has the slot's operation, one thread at a time.
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

/// Saves, restores and forgets by the books (StoredBooks), in the room of a BackupStore.
class StoredSlot {
public:
    StoredSlot(std::shared_ptr<BackupStore> store, StoredSlotOptions options)
        : books_{std::make_shared<Books>(std::move(store), options)} {}

    void prepare(const LiveSet& live);

    Ticket save(const LiveSet& live);

    Ticket restore(const LiveSet& live);

    Status resumed() noexcept;
    /// From the next resume on.
    void set_retain(bool yes) noexcept { books_->options.retain = yes; }
    Status close() noexcept { return books_->clear(); }

    void forget(std::uint64_t serial) noexcept;

    void invalidate() noexcept;

    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return books_->saved_bytes.load(); }

    /// The kept bytes of a part of a block. Throws what reading them may throw; Misuse if there are none.
    [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const;

private:
    using Books = StoredBooks;
    using Entry = Books::Entry;
    using UnderWay = Books::UnderWay;

    struct Saved {
        std::uint64_t serial;
        bool whole; ///< else a part of the block was away, and may have been saved by nobody
    };

    /// A transfer that notes its end in the books.
    class NotedWork final : public Ticket::Work {
    public:
        NotedWork(std::shared_ptr<Books> books, UnderWay under_way, std::unique_ptr<Ticket::Work> work,
                  std::vector<Saved> saved);
        Status query(bool& done) noexcept override { return work_->query(done); }
        Status follow(StreamRef stream, Range range) noexcept override { return work_->follow(stream, range); }
        MEMSAVER_INLINE Status wait() override;

    private:
        std::shared_ptr<Books> books_;
        UnderWay under_way_;
        std::unique_ptr<Ticket::Work> work_; // waits when it dies, which is before the others
        std::vector<Saved> saved_;           // once it is done
    };

    Ticket ticket(std::unique_ptr<Ticket::Work> work, const std::vector<Unit>& units, std::vector<Saved> saved,
                  UnderWay under_way);
    static std::vector<LiveBlock> sorted(const LiveSet& live);

    std::shared_ptr<Books> books_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/stored_slot.ipp"
#endif
