// Holders of memory on one machine, so that a holder that runs out of memory can ask the others to release unused
// memory.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace memsaver::inline v0_3 {

namespace detail {

/// An object that holds memory of a machine.
class Neighbour {
public:
    /// Releases unused memory and returns the number of bytes released; with `wait`, once all work submitted to the
    /// device so far has completed. Does not wait for other threads: a neighbour with an operation in progress releases
    /// nothing.
    virtual std::size_t release_unused(bool wait) noexcept = 0;
    /// Waits for operations of other threads on its memory; returns whether there were any.
    virtual bool wait_for_others() noexcept = 0;

protected:
    Neighbour() = default;
    Neighbour(const Neighbour&) = default;
    Neighbour& operator=(const Neighbour&) = default;
    ~Neighbour() = default;
};

} // namespace detail

/// Shared by all copies of a driver, so that savers and arenas on one machine find each other: each is asked for unused
/// memory before another one throws OutOfMemory. A driver only has to provide one. Thread-safe.
class Neighbours {
public:
    Neighbours();
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;
    ~Neighbours();

    /// Adds a neighbour, which is asked until it leaves. Throws std::bad_alloc.
    void join(detail::Neighbour& neighbour);
    /// Waits while the neighbour is being asked. A no-op for one that has not joined.
    void leave(detail::Neighbour& neighbour) noexcept;
    /// Asks each neighbour, and returns the total number of bytes released. Holds no lock during the calls.
    std::size_t release_unused(bool wait) noexcept;
    /// Waits for operations of other threads; returns whether there were any. The caller must have none in progress.
    bool wait_for_others() noexcept;

    /// Announces that streams of the machine will wait for words set by host threads, until `words_set`. Waits while a
    /// DeviceWait is alive.
    void words_wait() noexcept;
    /// Ends one call of `words_wait`: its words have been set.
    void words_set() noexcept;
    /// Returns whether such streams exist now.
    [[nodiscard]] bool words_waiting() const noexcept { return words_or_waits_.load() > 0; }

    struct Try {}; ///< like std::try_to_lock

    /// While a DeviceWait is alive, no stream starts to wait for words. Its constructor waits until streams that
    /// already do have continued. Must not be created on threads that set words.
    class DeviceWait {
    public:
        /// Waits until no stream waits for words.
        explicit DeviceWait(Neighbours& neighbours) noexcept;
        /// Does not wait; the object is empty if a stream waits for words now.
        DeviceWait(Neighbours& neighbours, Try) noexcept;
        DeviceWait(const DeviceWait&) = delete;
        DeviceWait& operator=(const DeviceWait&) = delete;
        ~DeviceWait();
        /// Returns false only after `Try`, if a stream was waiting for words.
        [[nodiscard]] bool owns() const noexcept { return neighbours_ != nullptr; }

    private:
        Neighbours* neighbours_; // null if empty
    };

    /// The copies of the machine in one direction.
    struct Lane {
        std::atomic<unsigned> transfers{0};  ///< number of transfers that use this lane
        std::atomic<bool> stalled{false};    ///< whether the last transfer that monitored its copies found them slow
        std::atomic<std::int64_t> looked{0}; ///< time of that finding, in nanoseconds of the steady clock
    };
    /// The same object for all callers.
    [[nodiscard]] Lane& lane(Direction direction) noexcept { return lanes_[direction == Direction::out ? 0 : 1]; }

private:
    struct Books; // neighbours that have joined
    std::unique_ptr<Books> books_;
    /// Adds 1 or -1 once the current count has that sign or is 0.
    void take_part(int one) noexcept;
    /// Returns whether it could do so without waiting.
    [[nodiscard]] bool try_part(int one) noexcept;
    void end_part(int one) noexcept;

    std::atomic<int> words_or_waits_{0}; // positive: open calls of `words_wait`; negative: live DeviceWaits
    Lane lanes_[2];
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/neighbours.ipp"
#endif
