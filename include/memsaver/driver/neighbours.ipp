// Definitions of neighbours.hpp.
#pragma once

#include "memsaver/driver/neighbours.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace memsaver::inline v0_2 {

MEMSAVER_INLINE void Neighbours::join(detail::Neighbour& neighbour) {
    const std::lock_guard lock{mutex_};
    entries_.emplace(last_ + 1, Entry{&neighbour});
    last_ += 1;
}

MEMSAVER_INLINE void Neighbours::leave(detail::Neighbour& neighbour) noexcept {
    std::unique_lock lock{mutex_};
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return entry.second.neighbour == &neighbour; });
    if (found == entries_.end()) return;
    answered_.wait(lock, [&] { return found->second.asked == 0; });
    entries_.erase(found);
}

MEMSAVER_INLINE std::size_t Neighbours::give_room(bool wait) noexcept {
    std::size_t given = 0;
    each([&](detail::Neighbour& neighbour) { given += neighbour.give_room(wait); });
    return given;
}

MEMSAVER_INLINE bool Neighbours::wait_for_others() noexcept {
    bool any = false;
    each([&](detail::Neighbour& neighbour) { any = neighbour.wait_for_others() || any; });
    return any;
}

} // namespace memsaver::inline v0_2
