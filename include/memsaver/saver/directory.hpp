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

/// Maps address ranges to arenas, and keeps the arenas alive. Thread-safe. Each reader takes one of several locks,
/// chosen by thread, so readers rarely contend; adding and removing take all locks.
class Directory {
    struct Entry {
        Range range;
        std::shared_ptr<ArenaCore> arena;
    };
    using Entries = std::map<Address, Entry>;

public:
    /// A preallocated entry, so that host memory is allocated before the addresses exist.
    using Node = Entries::node_type;
    [[nodiscard]] static Node node(std::shared_ptr<ArenaCore> arena) {
        Entries one;
        one.emplace(Address{0}, Entry{Range{}, std::move(arena)});
        return one.extract(one.begin());
    }
    /// Adds a range, which must not overlap another.
    void put(Node node, Range range) noexcept {
        node.key() = range.address;
        node.mapped().range = range;
        Node old; // destroyed after the locks are released, because it may destroy an arena
        const All all{*this};
        old = entries_.extract(range.address); // stale entry of an arena that no longer exists
        entries_.insert(std::move(node));
    }
    /// Removes and returns the entry that begins at `address`; empty if there is none.
    Node take(Address address) noexcept {
        const All all{*this};
        return entries_.extract(address);
    }

    /// Strong exception guarantee: may throw bad_alloc.
    void add(Range range, std::shared_ptr<ArenaCore> arena) { put(node(std::move(arena)), range); }
    /// Removes all ranges of the arena.
    void remove(const ArenaCore& arena) noexcept {
        for (;;) {
            Node gone; // destroyed after the locks are released
            const All all{*this};
            auto entry = entries_.begin();
            while (entry != entries_.end() && entry->second.arena.get() != &arena) ++entry;
            if (entry == entries_.end()) return;
            gone = entries_.extract(entry);
        }
    }

    /// Returns the arena whose addresses contain `address`, or null.
    [[nodiscard]] std::shared_ptr<ArenaCore> find(Address address) const noexcept {
        Shard& shard = shards_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % shard_count];
        const std::lock_guard lock{shard.mutex};
        const auto after = entries_.upper_bound(address);
        if (after == entries_.begin()) return nullptr;
        const Entry& entry = std::prev(after)->second;
        return address < entry.range.end() ? entry.arena : nullptr;
    }

private:
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

    mutable std::array<Shard, shard_count> shards_;
    Entries entries_; // read under any one lock, changed under all of them
};

} // namespace memsaver::inline v0_3::detail
