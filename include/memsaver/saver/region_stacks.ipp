// Definitions of region_stacks.hpp.
#pragma once

#include "memsaver/saver/region_stacks.hpp"

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void RegionStacks::enter(ArenaBase& arena, const void* region) {
    const auto thread = std::this_thread::get_id();
    Shard& shard = shard_of(thread);
    const std::lock_guard lock{shard.mutex};
    shard.stacks[thread].push_back({&arena, region});
}

MEMSAVER_INLINE RegionStacks::Left RegionStacks::leave(const void* region) noexcept {
    const auto here = std::this_thread::get_id();
    const auto leave = [&](Shard& shard, std::optional<std::thread::id> only) -> std::optional<Left> {
        const std::lock_guard lock{shard.mutex};
        for (auto stack = shard.stacks.begin(); stack != shard.stacks.end(); ++stack) {
            if (only && stack->first != *only) continue;
            auto& entries = stack->second;
            const bool last = !entries.empty() && entries.back().region == region;
            if (std::erase_if(entries, [&](const Entry& entry) { return entry.region == region; }) == 0) continue;
            const bool mine = stack->first == here;
            if (entries.empty()) shard.stacks.erase(stack);
            return !mine ? Left::on_another_thread : last ? Left::in_order : Left::out_of_order;
        }
        return {};
    };
    if (const auto left = leave(shard_of(here), here)) return *left;
    for (Shard& shard : shards_) {
        if (const auto left = leave(shard, {})) return *left;
    }
    return Left::out_of_order;
}

MEMSAVER_INLINE std::size_t RegionStacks::open() {
    std::size_t count = 0;
    for (Shard& shard : shards_) {
        const std::lock_guard lock{shard.mutex};
        for (const auto& [thread, stack] : shard.stacks) count += stack.size();
    }
    return count;
}

MEMSAVER_INLINE ArenaBase* RegionStacks::innermost() {
    const auto thread = std::this_thread::get_id();
    Shard& shard = shard_of(thread);
    const std::lock_guard lock{shard.mutex};
    const auto stack = shard.stacks.find(thread);
    return stack == shard.stacks.end() || stack->second.empty() ? nullptr : stack->second.back().arena;
}

MEMSAVER_INLINE RegionStacks::Shard& RegionStacks::shard_of(std::thread::id thread) noexcept {
    return shards_[std::hash<std::thread::id>{}(thread) % shards_.size()];
}

} // namespace detail

} // namespace memsaver::inline v0_3
