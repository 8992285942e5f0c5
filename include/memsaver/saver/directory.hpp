// Maps addresses to arenas. Knows nothing else about arenas.
#pragma once

#include "memsaver/arena/arena.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Maps address ranges, which do not overlap, to arenas, and keeps the arenas alive. Thread-safe. Each reader takes one
/// of several locks, chosen by thread, so readers rarely contend; adding and removing take all locks.
class Directory {
    friend class PlainBlocks; // whose table of blocks this is

    struct Entry {
        Range range{};
        std::shared_ptr<ArenaCore> arena{};
        bool plain = false; ///< a block of plain memory
        bool freed = false; ///< which is freed, but replays may touch it, or it could not be freed
    };
    using Entries = std::map<Address, Entry>;

    static constexpr std::size_t shard_count = 16;
    struct alignas(64) Shard {
        std::mutex mutex;
    };
    /// Scoped lock on all shards.
    class All {
    public:
        explicit All(Directory& directory) noexcept : shards_{directory.shards_} {
            for (Shard& shard : shards_) shard.mutex.lock();
        }
        All& operator=(All&&) = delete;
        ~All() {
            for (Shard& shard : shards_) shard.mutex.unlock();
        }

    private:
        std::array<Shard, shard_count>& shards_;
    };

    /// The lock of this thread's shard, for reading.
    [[nodiscard]] std::mutex& one() const noexcept {
        return shards_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % shard_count].mutex;
    }
    /// Returns the entry that contains an address, or the end.
    template <class Map>
    [[nodiscard]] static auto over(Map& entries, Address address) noexcept {
        const auto after = entries.upper_bound(address);
        const auto entry = after == entries.begin() ? after : std::prev(after);
        return entry != after && address < entry->second.range.end() ? entry : entries.end();
    }

public:
    /// Strong exception guarantee: may throw std::bad_alloc.
    void add(Range range, std::shared_ptr<ArenaCore> arena) {
        Entry entry{range, std::move(arena)};
        const All all{*this};
        std::swap(entries_[range.address], entry); // a stale one, if there is one, is destroyed without the locks
    }
    /// Removes all ranges of the arena, which the caller keeps, except plain memory.
    void remove(const ArenaCore& arena) noexcept {
        const All all{*this};
        std::erase_if(entries_,
                      [&](const auto& each) { return each.second.arena.get() == &arena && !each.second.plain; });
    }
    /// Returns the arena whose addresses contain `address`, or null.
    [[nodiscard]] std::shared_ptr<ArenaCore> find(Address address) const noexcept {
        const std::lock_guard lock{one()};
        const auto entry = over(entries_, address);
        return entry == entries_.end() ? nullptr : entry->second.arena;
    }

private:
    mutable std::array<Shard, shard_count> shards_;
    Entries entries_; // read under any one lock, changed under all of them
};

} // namespace memsaver::inline v0_3::detail
