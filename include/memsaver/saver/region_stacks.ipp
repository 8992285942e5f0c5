// Definitions of region_stacks.hpp.
#pragma once

#include "memsaver/saver/region_stacks.hpp"

#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void RegionStacks::enter(ArenaCore& arena, const void* region) {
    ThreadMark mark = ThreadMark::here();
    Shard& shard = own();
    const std::lock_guard lock{shard.mutex};
    shard.entries.push_back({&arena, region, std::move(mark)});
}

MEMSAVER_INLINE RegionStacks::Left RegionStacks::leave(const void* region) noexcept {
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

MEMSAVER_INLINE std::size_t RegionStacks::open() {
    std::size_t count = 0;
    for (Shard& shard : shards_) {
        const std::lock_guard lock{shard.mutex};
        count += shard.entries.size();
    }
    return count;
}

MEMSAVER_INLINE ArenaCore* RegionStacks::innermost() {
    Shard& shard = own();
    const std::lock_guard lock{shard.mutex};
    std::size_t left = shard.entries.size();
    while (left != 0 && !shard.entries[left - 1].thread.is_here()) --left;
    return left != 0 ? shard.entries[left - 1].arena : nullptr;
}

MEMSAVER_INLINE RegionStacks::Shard& RegionStacks::own() noexcept {
    return shards_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % shards_.size()];
}

} // namespace detail

} // namespace memsaver::inline v0_3
