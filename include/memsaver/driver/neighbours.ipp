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
#include <utility>

namespace memsaver::inline v0_3 {

struct Neighbours::Books {
    struct Entry {
        detail::Neighbour* neighbour;
        unsigned asked = 0; ///< number of threads asking it now
    };

    /// Calls `ask(neighbour)` for each, with no lock held.
    template <class Ask>
    void each(Ask&& ask) noexcept {
        std::unique_lock lock{mutex};
        for (std::uint64_t after = 0;;) {
            const auto found = entries.upper_bound(after);
            if (found == entries.end()) return;
            after = found->first;
            Entry& entry = found->second; // stays at its address while it is being asked
            entry.asked += 1;
            lock.unlock();
            ask(*entry.neighbour);
            lock.lock();
            entry.asked -= 1;
            answered.notify_all();
        }
    }

    std::mutex mutex;
    std::condition_variable answered;
    std::map<std::uint64_t, Entry> entries; // in the order of joining, by a number that is never reused
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

MEMSAVER_INLINE std::size_t Neighbours::release_unused(bool wait) noexcept {
    std::size_t given = 0;
    books_->each([&](detail::Neighbour& neighbour) { given += neighbour.release_unused(wait); });
    return given;
}

MEMSAVER_INLINE void Neighbours::words_wait() noexcept { take_part(1); }

MEMSAVER_INLINE void Neighbours::words_set() noexcept { end_part(1); }

MEMSAVER_INLINE Neighbours::DeviceWait::DeviceWait(Neighbours& neighbours) noexcept : neighbours_{&neighbours} {
    neighbours.take_part(-1);
}

MEMSAVER_INLINE Neighbours::DeviceWait::DeviceWait(Neighbours& neighbours, Try) noexcept
    : neighbours_{neighbours.try_part(-1) ? &neighbours : nullptr} {}

MEMSAVER_INLINE Neighbours::DeviceWait::~DeviceWait() {
    if (neighbours_ != nullptr) neighbours_->end_part(-1);
}

MEMSAVER_INLINE void Neighbours::take_part(int one) noexcept {
    while (!try_part(one)) {
        const int seen = words_or_waits_.load();
        if (seen * one < 0) words_or_waits_.wait(seen);
    }
}

MEMSAVER_INLINE bool Neighbours::try_part(int one) noexcept {
    for (int seen = words_or_waits_.load(); seen * one >= 0;) {
        if (words_or_waits_.compare_exchange_weak(seen, seen + one)) return true;
    }
    return false;
}

MEMSAVER_INLINE void Neighbours::end_part(int one) noexcept {
    words_or_waits_.fetch_sub(one);
    words_or_waits_.notify_all();
}

MEMSAVER_INLINE bool Neighbours::wait_for_others() noexcept {
    bool any = false;
    books_->each([&](detail::Neighbour& neighbour) { any = neighbour.wait_for_others() || any; });
    return any;
}

} // namespace memsaver::inline v0_3
