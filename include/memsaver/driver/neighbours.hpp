// Those who hold memory of one machine, so that who finds no room there can ask them for what nobody uses. Does not
// know what they are.
#pragma once

#include "memsaver/core/form.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace memsaver::inline v0_2 {

namespace detail {

/// One who holds memory of a machine.
class Neighbour {
public:
    /// Gives back what nobody uses, and answers how many bytes that was; with `wait`, once the device's work so far has
    /// passed. Does not wait for other threads: who is at work on its memory gives nothing.
    virtual std::size_t give_room(bool wait) noexcept = 0;
    /// Waits for the operation that another thread has under way on its memory; answers whether there was one.
    virtual bool wait_for_others() noexcept = 0;

protected:
    Neighbour() = default;
    Neighbour(const Neighbour&) = default;
    Neighbour& operator=(const Neighbour&) = default;
    ~Neighbour() = default;
};

} // namespace detail

/// What all copies of a driver share, so that savers and arenas on one machine find each other: each is asked for
/// memory that nobody uses before another of them throws OutOfMemory. A driver has one to give, and nothing else to do
/// with it. Thread safe.
class Neighbours {
public:
    Neighbours() = default;
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;
    ~Neighbours() = default;

    /// Throws std::bad_alloc. Until it leaves, it is asked.
    void join(detail::Neighbour& neighbour);
    /// Waits while it is being asked. Does nothing for one that has not joined.
    void leave(detail::Neighbour& neighbour) noexcept;
    /// Asks each of them, and answers how many bytes they gave back. No lock is held meanwhile.
    std::size_t give_room(bool wait) noexcept;
    /// Waits for the operations that other threads have under way; answers whether there were any. The caller has none.
    bool wait_for_others() noexcept;

private:
    struct Entry {
        detail::Neighbour* neighbour;
        unsigned asked = 0; ///< threads that are asking it now
    };

    /// Calls `ask(neighbour)` for each, with no lock held.
    template <class Ask>
    void each(Ask&& ask) noexcept {
        std::unique_lock lock{mutex_};
        for (std::uint64_t after = 0;;) {
            const auto found = entries_.upper_bound(after);
            if (found == entries_.end()) return;
            after = found->first;
            Entry& entry = found->second; // stays where it is for as long as it is asked
            entry.asked += 1;
            lock.unlock();
            ask(*entry.neighbour);
            lock.lock();
            entry.asked -= 1;
            answered_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable answered_;
    std::map<std::uint64_t, Entry> entries_; // as they joined, by a number that is never used again
    std::uint64_t last_ = 0;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/neighbours.ipp"
#endif
