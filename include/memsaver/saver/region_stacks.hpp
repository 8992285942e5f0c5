// The open regions of each thread.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/vector.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Keeps the open regions of each thread. A thread_local in a header would not work, because it is one object in a
/// program and another in a library that the program loads. Regions that a thread left open when it ended stay, and are
/// no regions of later threads with its id. Thread-safe; a lookup costs about 15 ns. Must not be used in a forked
/// child, where locks are in the state that other threads left them in.
class RegionStacks {
public:
    void enter(ArenaCore& arena, const void* region) {
        ThreadMark mark = ThreadMark::here();
        Shard& shard = own();
        const std::lock_guard lock{shard.mutex};
        shard.entries.push_back({&arena, region, std::move(mark)});
    }

    /// Removes a region, whoever opened it: a region that ends out of order, or on another thread than it
    /// began on, does not disturb others.
    struct Left {
        enum class How : unsigned char { in_order, out_of_order, on_another_thread };
        How how = How::out_of_order;
        ThreadMark opener{}; ///< the thread that opened it
    };
    Left leave(const void* region) noexcept {
        using How = Left::How;
        const auto leave = [&](Shard& shard, Left& left) {
            const std::lock_guard lock{shard.mutex};
            auto& entries = shard.entries;
            std::size_t at = 0;
            while (at < entries.size() && entries[at].region != region) ++at;
            if (at == entries.size()) return false;
            left = {How::on_another_thread, std::move(entries[at].thread)};
            entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
            if (!left.opener.is_here()) return true;
            left.how = How::in_order;
            for (; at < entries.size(); ++at) { // opened later
                if (entries[at].thread.is_here()) left.how = How::out_of_order;
            }
            return true;
        };
        Left left;
        if (leave(own(), left)) return left;
        for (Shard& shard : shards_) {
            if (leave(shard, left)) break;
        }
        return left;
    }

    /// Returns the arena of this thread's innermost region, or null. The region keeps the arena alive.
    [[nodiscard]] ArenaCore* innermost() {
        Shard& shard = own();
        const std::lock_guard lock{shard.mutex};
        std::size_t left = shard.entries.size();
        while (left != 0 && !shard.entries[left - 1].thread.is_here()) --left;
        return left != 0 ? shard.entries[left - 1].arena : nullptr;
    }
    /// Returns the number of open regions on all threads.
    [[nodiscard]] std::size_t open() {
        std::size_t count = 0;
        for (Shard& shard : shards_) {
            const std::lock_guard lock{shard.mutex};
            count += shard.entries.size();
        }
        return count;
    }

private:
    struct Entry {
        ArenaCore* arena;
        const void* region;
        ThreadMark thread;
    };
    struct Shard { // of some threads
        std::mutex mutex;
        Vector<Entry> entries; // the oldest first
    };

    /// Returns that of this thread.
    [[nodiscard]] Shard& own() noexcept {
        return shards_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % shards_.size()];
    }
    std::array<Shard, 16> shards_;
};

} // namespace memsaver::inline v0_3::detail
