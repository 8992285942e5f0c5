// The open regions of each thread.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/thread_mark.hpp"

#include <array>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Keeps the open regions of each thread. A thread_local in a header would not work, because it is one object in a
/// program and another in a library that the program loads. Regions that a thread left open when it ended stay, and are
/// no regions of later threads with its id. Thread-safe; a lookup costs
/// about 15 ns. Must not be used in a forked child, where locks are in the state that other threads left them in.
class RegionStacks {
public:
    void enter(ArenaCore& arena, const void* region);

    /// Removes a region from whichever stack it is on: a region that ends out of order, or on another thread than it
    /// began on, does not disturb others.
    struct Left {
        enum class How : unsigned char { in_order, out_of_order, on_another_thread };
        How how = How::out_of_order;
        ThreadMark opener{}; ///< the thread that opened it
    };
    Left leave(const void* region) noexcept;

    /// Returns the arena of this thread's innermost region, or null. The region keeps the arena alive.
    [[nodiscard]] ArenaCore* innermost();
    /// Returns the number of open regions on all threads.
    [[nodiscard]] std::size_t open();

private:
    struct Entry {
        ArenaCore* arena;
        const void* region;
        ThreadMark thread;
    };
    struct Shard { // of some threads
        std::mutex mutex;
        std::vector<Entry> entries; // the oldest first
    };

    /// Returns that of this thread.
    [[nodiscard]] Shard& own() noexcept;
    std::array<Shard, 16> shards_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/region_stacks.ipp"
#endif
