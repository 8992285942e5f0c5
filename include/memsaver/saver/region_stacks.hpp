// Which region each thread is in.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/driver/system_fork.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace memsaver::inline v0_1 {

/// A stack for each thread, found by the thread's id: a thread_local in a header would be one object in a program and
/// another in a library that it loads. Thread safe; a look-up costs about 15 ns. A forked child is refused, for it
/// finds locks as other threads left them.
class RegionStacks {
public:
    void enter(ArenaBase& arena, const void* region) {
        fork_mark_.require_parent("begin a region");
        const auto thread = std::this_thread::get_id();
        Shard& shard = shard_of(thread);
        const std::lock_guard lock{shard.mutex};
        shard.stacks[thread].push_back({&arena, region});
    }

    /// Removes a region wherever it is: regions that are not ended in order, or on another thread than they were begun
    /// on, do not disturb others. Answers whether all was in order: it was this thread's innermost, or this is a child.
    bool leave(const void* region) noexcept {
        if (fork_mark_.forked()) return true;
        const auto here = std::this_thread::get_id();
        if (leave(shard_of(here), here, region)) return true;
        for (Shard& shard : shards_) {
            const std::lock_guard lock{shard.mutex};
            for (auto& [thread, stack] : shard.stacks) {
                if (std::erase_if(stack, [&](const Entry& entry) { return entry.region == region; }) != 0) return false;
            }
        }
        return false;
    }

    /// This thread's innermost region's arena, or null.
    [[nodiscard]] ArenaBase* innermost() {
        fork_mark_.require_parent("allocate");
        const auto thread = std::this_thread::get_id();
        Shard& shard = shard_of(thread);
        const std::lock_guard lock{shard.mutex};
        const auto stack = shard.stacks.find(thread);
        return stack == shard.stacks.end() || stack->second.empty() ? nullptr : stack->second.back().arena;
    }

private:
    struct Entry {
        ArenaBase* arena;
        const void* region;
    };
    struct Shard {
        std::mutex mutex;
        std::unordered_map<std::thread::id, std::vector<Entry>> stacks;
    };

    Shard& shard_of(std::thread::id thread) noexcept {
        return shards_[std::hash<std::thread::id>{}(thread) % shards_.size()];
    }
    static bool leave(Shard& shard, std::thread::id thread, const void* region) noexcept {
        const std::lock_guard lock{shard.mutex};
        const auto stack = shard.stacks.find(thread);
        if (stack == shard.stacks.end() || stack->second.empty() || stack->second.back().region != region) return false;
        stack->second.pop_back();
        if (stack->second.empty()) shard.stacks.erase(stack);
        return true;
    }

    ForkMark fork_mark_; // asked before any lock
    std::array<Shard, 16> shards_;
};

} // namespace memsaver::inline v0_1
