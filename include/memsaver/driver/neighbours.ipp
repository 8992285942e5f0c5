// Definitions of neighbours.hpp.
#pragma once

#include "memsaver/driver/neighbours.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace memsaver::inline v0_2 {

struct Neighbours::Books {
    struct Entry {
        detail::Neighbour* neighbour;
        unsigned asked = 0; ///< threads that are asking it now
    };

    std::mutex mutex;
    std::condition_variable answered;
    std::map<std::uint64_t, Entry> entries; // as they joined, by a number that is never used again
    std::uint64_t last = 0;
};

MEMSAVER_INLINE Neighbours::Neighbours() : books_{std::make_unique<Books>()} {}

MEMSAVER_INLINE Neighbours::~Neighbours() = default;

MEMSAVER_INLINE void Neighbours::join(detail::Neighbour& neighbour) {
    const std::lock_guard lock{books_->mutex};
    books_->entries.emplace(books_->last + 1, Books::Entry{&neighbour});
    books_->last += 1;
}

MEMSAVER_INLINE void Neighbours::leave(detail::Neighbour& neighbour) noexcept {
    std::unique_lock lock{books_->mutex};
    const auto found = std::find_if(books_->entries.begin(), books_->entries.end(),
                                    [&](const auto& entry) { return entry.second.neighbour == &neighbour; });
    if (found == books_->entries.end()) return;
    books_->answered.wait(lock, [&] { return found->second.asked == 0; });
    books_->entries.erase(found);
}

MEMSAVER_INLINE std::size_t Neighbours::give_room(bool wait) noexcept {
    std::size_t given = 0;
    std::unique_lock lock{books_->mutex};
    for (std::uint64_t after = 0;;) {
        const auto found = books_->entries.upper_bound(after);
        if (found == books_->entries.end()) return given;
        after = found->first;
        Books::Entry& entry = found->second; // stays where it is for as long as it is asked
        entry.asked += 1;
        lock.unlock();
        given += entry.neighbour->give_room(wait);
        lock.lock();
        entry.asked -= 1;
        books_->answered.notify_all();
    }
}

} // namespace memsaver::inline v0_2
