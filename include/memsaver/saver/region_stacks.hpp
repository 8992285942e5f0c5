// Which region each thread is in.
#pragma once

#include "memsaver/arena/arena_base.hpp"

#include <array>
#include <cstddef>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// A stack for each thread, found by the thread's id: a thread_local in a header would be one object in a program and
/// another in a library that it loads. Thread safe; a look-up costs about 15 ns. Not for a forked child, which finds
/// locks as other threads left them.
class RegionStacks {
public:
    void enter(ArenaBase& arena, const void* region);

    /// Removes a region wherever it is: regions that are not ended in order, or on another thread than they were begun
    /// on, do not disturb others.
    enum class Left : unsigned char { in_order, out_of_order, on_another_thread };
    Left leave(const void* region) noexcept;

    /// This thread's innermost region's arena, or null. The region keeps it alive.
    [[nodiscard]] ArenaBase* innermost();
    /// How many regions are open, on all threads.
    [[nodiscard]] std::size_t open();

private:
    struct Entry {
        ArenaBase* arena;
        const void* region;
    };
    struct Shard {
        std::mutex mutex;
        std::unordered_map<std::thread::id, std::vector<Entry>> stacks;
    };

    [[nodiscard]] Shard& shard_of(std::thread::id thread) noexcept;
    std::array<Shard, 16> shards_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/region_stacks.ipp"
#endif
