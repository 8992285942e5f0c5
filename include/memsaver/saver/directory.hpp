// Whose an address is. Knows arenas only as what stands behind ranges.
#pragma once

#include "memsaver/arena/arena_base.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

/// Ranges of addresses, each of one arena, which it keeps alive. Thread safe. Readers take one of a few locks, each
/// thread its own, so they do not meet; whoever adds or removes takes them all.
class Directory {
    struct Entry {
        Range range;
        std::shared_ptr<ArenaBase> arena;
    };
    using Entries = std::map<Address, Entry>;

public:
    /// Room for one entry: what needs host memory is done before the addresses are there.
    using Node = Entries::node_type;
    [[nodiscard]] static Node node(std::shared_ptr<ArenaBase> arena);
    /// A range that no other overlaps.
    void put(Node node, Range range) noexcept;
    /// Takes out what begins at `address`; empty if nothing does.
    Node take(Address address) noexcept;

    /// May throw bad_alloc; then nothing changed.
    void add(Range range, std::shared_ptr<ArenaBase> arena) { put(node(std::move(arena)), range); }
    void remove(Range range) noexcept { (void)take(range.address); }
    /// All that is the arena's.
    void remove(const ArenaBase& arena) noexcept;

    /// The arena whose addresses hold `address`, or null.
    [[nodiscard]] std::shared_ptr<ArenaBase> find(Address address) const noexcept;

private:
    static constexpr std::size_t shard_count = 16;
    struct alignas(64) Shard {
        std::mutex mutex;
    };
    class All;

    mutable std::array<Shard, shard_count> shards_;
    Entries entries_; // read under any of the locks, changed under all of them
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/directory.ipp"
#endif
