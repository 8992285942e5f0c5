// Definitions of directory.hpp.
#pragma once

#include "memsaver/saver/directory.hpp"

#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// Scoped lock on all shards.
class Directory::All {
public:
    explicit All(Directory& directory) noexcept : shards_{directory.shards_} {
        for (Shard& shard : shards_) shard.mutex.lock();
    }
    All(const All&) = delete;
    All& operator=(const All&) = delete;
    ~All() {
        for (Shard& shard : shards_) shard.mutex.unlock();
    }

private:
    std::array<Shard, shard_count>& shards_;
};

MEMSAVER_INLINE Directory::Node Directory::node(std::shared_ptr<ArenaCore> arena) {
    Entries one;
    one.emplace(Address{0}, Entry{Range{}, std::move(arena)});
    return one.extract(one.begin());
}

MEMSAVER_INLINE void Directory::put(Node node, Range range) noexcept {
    node.key() = range.address;
    node.mapped().range = range;
    Node old; // destroyed after the locks are released, because it may destroy an arena
    const All all{*this};
    old = entries_.extract(range.address); // stale entry of an arena that no longer exists
    entries_.insert(std::move(node));
}

MEMSAVER_INLINE Directory::Node Directory::take(Address address) noexcept {
    const All all{*this};
    return entries_.extract(address);
}

MEMSAVER_INLINE void Directory::remove(const ArenaCore& arena) noexcept {
    for (;;) {
        Node gone; // destroyed after the locks are released
        const All all{*this};
        auto entry = entries_.begin();
        while (entry != entries_.end() && entry->second.arena.get() != &arena) ++entry;
        if (entry == entries_.end()) return;
        gone = entries_.extract(entry);
    }
}

MEMSAVER_INLINE std::shared_ptr<ArenaCore> Directory::find(Address address) const noexcept {
    Shard& shard = shards_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % shard_count];
    const std::lock_guard lock{shard.mutex};
    const auto after = entries_.upper_bound(address);
    if (after == entries_.begin()) return nullptr;
    const Entry& entry = std::prev(after)->second;
    return address < entry.range.end() ? entry.arena : nullptr;
}

} // namespace detail

} // namespace memsaver::inline v0_3
