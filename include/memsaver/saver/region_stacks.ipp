// Definitions of region_stacks.hpp.
#pragma once

#include "memsaver/saver/region_stacks.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void RegionStacks::enter(ArenaCore& arena, const void* region) {
    const auto thread = std::this_thread::get_id();
    ThreadMark mark = ThreadMark::here();
    Shard& shard = shard_of(thread);
    const std::lock_guard lock{shard.mutex};
    shard.stacks[thread].push_back({&arena, region, std::move(mark)});
}

MEMSAVER_INLINE RegionStacks::Left RegionStacks::leave(const void* region) noexcept {
    using How = Left::How;
    const auto here = std::this_thread::get_id();
    const auto leave = [&](Shard& shard, std::optional<std::thread::id> only) -> std::optional<Left> {
        const std::lock_guard lock{shard.mutex};
        for (auto stack = shard.stacks.begin(); stack != shard.stacks.end(); ++stack) {
            if (only && stack->first != *only) continue;
            auto& entries = stack->second;
            const auto at = std::find_if(entries.begin(), entries.end(),
                                         [&](const Entry& entry) { return entry.region == region; });
            if (at == entries.end()) continue;
            const bool last = at + 1 == entries.end();
            Left left{How::on_another_thread, std::move(at->thread)};
            if (left.opener.is_here()) left.how = last ? How::in_order : How::out_of_order;
            entries.erase(at);
            if (entries.empty()) shard.stacks.erase(stack);
            return left;
        }
        return {};
    };
    if (auto left = leave(shard_of(here), here)) return *left;
    for (Shard& shard : shards_) {
        if (auto left = leave(shard, {})) return *left;
    }
    return {};
}

MEMSAVER_INLINE std::size_t RegionStacks::open() {
    std::size_t count = 0;
    for (Shard& shard : shards_) {
        const std::lock_guard lock{shard.mutex};
        for (const auto& [thread, stack] : shard.stacks) count += stack.size();
    }
    return count;
}

MEMSAVER_INLINE ArenaCore* RegionStacks::innermost() {
    const auto thread = std::this_thread::get_id();
    Shard& shard = shard_of(thread);
    const std::lock_guard lock{shard.mutex};
    const auto stack = shard.stacks.find(thread);
    if (stack == shard.stacks.end() || stack->second.empty()) return nullptr;
    const Entry& last = stack->second.back(); // those of an earlier thread with this id are below
    return last.thread.running() ? last.arena : nullptr;
}

MEMSAVER_INLINE RegionStacks::Shard& RegionStacks::shard_of(std::thread::id thread) noexcept {
    return shards_[std::hash<std::thread::id>{}(thread) % shards_.size()];
}

} // namespace detail

} // namespace memsaver::inline v0_3
