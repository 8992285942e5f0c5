// Maps addresses to arenas. Knows nothing else about arenas.
#pragma once

#include "memsaver/arena/arena_core.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

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
    [[nodiscard]] static Node node(std::shared_ptr<ArenaCore> arena);
    /// Adds a range, which must not overlap another.
    void put(Node node, Range range) noexcept;
    /// Removes and returns the entry that begins at `address`; empty if there is none.
    Node take(Address address) noexcept;

    /// Strong exception guarantee: may throw bad_alloc.
    void add(Range range, std::shared_ptr<ArenaCore> arena) { put(node(std::move(arena)), range); }
    void remove(Range range) noexcept { (void)take(range.address); }
    /// Removes all ranges of the arena.
    void remove(const ArenaCore& arena) noexcept;

    /// Returns the arena whose addresses contain `address`, or null.
    [[nodiscard]] std::shared_ptr<ArenaCore> find(Address address) const noexcept;

private:
    static constexpr std::size_t shard_count = 16;
    struct alignas(64) Shard {
        std::mutex mutex;
    };
    class All;

    mutable std::array<Shard, shard_count> shards_;
    Entries entries_; // read under any one lock, changed under all of them
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/directory.ipp"
#endif
