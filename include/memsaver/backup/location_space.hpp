// Which parts of a backup's room are taken: host addresses, or offsets in a file. Pure bookkeeping.
#pragma once

#include "memsaver/base/sizes.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace memsaver::inline v0_1 {

/// Best fit, from the front of a free range, so that blocks placed one after the other into fresh room lie side by
/// side. Nothing reaches from one room into the next, though they may be neighbours: each is pinned, and given back, by
/// itself. Locations are not 0. Not thread safe. What throws bad_alloc has changed nothing; `take` and `clear` never
/// do.
class LocationSpace {
public:
    /// One more room.
    void add(std::uint64_t location, std::size_t bytes) {
        const auto start = starts_.insert(location).first;
        try {
            give(location, bytes);
        } catch (...) {
            starts_.erase(start);
            throw;
        }
    }

    /// The location of `bytes` free bytes, or 0.
    std::uint64_t take(std::size_t bytes) noexcept {
        const auto found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end()) return 0;
        const auto [size, location] = *found;
        if (size == bytes) {
            erase(location, size);
        } else {
            change(location, size, location + bytes, size - bytes);
        }
        return location;
    }

    void give(std::uint64_t location, std::size_t bytes) {
        const auto next = by_location_.lower_bound(location);
        const bool joins_next =
            next != by_location_.end() && location + bytes == next->first && !starts_.contains(next->first);
        const std::size_t behind = joins_next ? next->second : 0;
        if (next != by_location_.begin() && !starts_.contains(location)) {
            const auto [before, size] = *std::prev(next);
            if (before + size == location) {
                if (joins_next) erase(location + bytes, behind);
                return change(before, size, before, size + bytes + behind);
            }
        }
        if (joins_next) return change(location + bytes, behind, location, bytes + behind);
        insert(location, bytes);
    }

    /// Takes a range out for good if all of it is free.
    bool remove(std::uint64_t location, std::size_t bytes) {
        const auto after = by_location_.upper_bound(location);
        if (after == by_location_.begin()) return false;
        const auto [begin, size] = *std::prev(after);
        if (location + bytes > begin + size) return false;
        const auto before = static_cast<std::size_t>(location - begin);
        const std::size_t behind = size - before - bytes;
        if (before != 0 && behind != 0) insert(location + bytes, behind); // the only one that needs memory
        if (before != 0) {
            change(begin, size, begin, before);
        } else if (behind != 0) {
            change(begin, size, location + bytes, behind);
        } else {
            erase(begin, size);
        }
        starts_.erase(location);
        return true;
    }

    void clear() noexcept {
        by_location_.clear();
        by_size_.clear();
        starts_.clear();
    }

private:
    void insert(std::uint64_t location, std::size_t bytes) {
        const auto sized = by_size_.emplace(bytes, location).first;
        try {
            by_location_.emplace(location, bytes);
        } catch (...) {
            by_size_.erase(sized);
            throw;
        }
    }
    /// A range becomes another one, without a need for memory.
    void change(std::uint64_t from, std::size_t old_bytes, std::uint64_t to, std::size_t bytes) noexcept {
        auto located = by_location_.extract(from);
        auto sized = by_size_.extract({old_bytes, from});
        located.key() = to;
        located.mapped() = bytes;
        sized.value() = {bytes, to};
        by_location_.insert(std::move(located));
        by_size_.insert(std::move(sized));
    }
    void erase(std::uint64_t location, std::size_t bytes) noexcept {
        by_location_.erase(location);
        by_size_.erase({bytes, location});
    }

    std::map<std::uint64_t, std::size_t> by_location_;
    std::set<std::pair<std::size_t, std::uint64_t>> by_size_;
    std::set<std::uint64_t> starts_; // of rooms
};

} // namespace memsaver::inline v0_1
