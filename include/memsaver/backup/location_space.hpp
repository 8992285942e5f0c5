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
/// side. Locations are not 0. Not thread safe. May throw bad_alloc.
class LocationSpace {
public:
    void add(std::uint64_t location, std::size_t bytes) { give(location, bytes); }

    /// The location of `bytes` free bytes, or 0.
    std::uint64_t take(std::size_t bytes) {
        const auto found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end()) return 0;
        const auto [size, location] = *found;
        erase(location, size);
        if (size != bytes) insert(location + bytes, size - bytes);
        return location;
    }

    void give(std::uint64_t location, std::size_t bytes) {
        const auto next = by_location_.lower_bound(location);
        if (next != by_location_.begin()) {
            const auto [before, size] = *std::prev(next);
            if (before + size == location) {
                erase(before, size);
                location = before;
                bytes += size;
            }
        }
        if (const auto after = by_location_.find(location + bytes); after != by_location_.end()) {
            const std::size_t size = after->second;
            erase(after->first, size);
            bytes += size;
        }
        insert(location, bytes);
    }

    /// Takes a range out for good if all of it is free.
    bool remove(std::uint64_t location, std::size_t bytes) {
        const auto after = by_location_.upper_bound(location);
        if (after == by_location_.begin()) return false;
        const auto [begin, size] = *std::prev(after);
        if (location + bytes > begin + size) return false;
        erase(begin, size);
        if (begin != location) insert(begin, static_cast<std::size_t>(location - begin));
        if (begin + size != location + bytes) {
            insert(location + bytes, static_cast<std::size_t>(begin + size - location - bytes));
        }
        return true;
    }

    void clear() noexcept {
        by_location_.clear();
        by_size_.clear();
    }

private:
    void insert(std::uint64_t location, std::size_t bytes) {
        by_location_.emplace(location, bytes);
        by_size_.emplace(bytes, location);
    }
    void erase(std::uint64_t location, std::size_t bytes) {
        by_location_.erase(location);
        by_size_.erase({bytes, location});
    }

    std::map<std::uint64_t, std::size_t> by_location_;
    std::set<std::pair<std::size_t, std::uint64_t>> by_size_;
};

} // namespace memsaver::inline v0_1
