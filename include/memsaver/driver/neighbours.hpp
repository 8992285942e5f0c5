// Those who hold memory of one machine, so that who finds no room there can ask them for what nobody uses. Does not
// know what they are.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

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
    Neighbours();
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;
    ~Neighbours();

    /// Throws std::bad_alloc. Until it leaves, it is asked.
    void join(detail::Neighbour& neighbour);
    /// Waits while it is being asked. Does nothing for one that has not joined.
    void leave(detail::Neighbour& neighbour) noexcept;
    /// Asks each of them, and answers how many bytes they gave back. No lock is held meanwhile.
    std::size_t give_room(bool wait) noexcept;
    /// Waits for the operations that other threads have under way; answers whether there were any. The caller has none.
    bool wait_for_others() noexcept;

    /// Streams of the machine are to wait for words that threads of the host set, until `words_set`. Waits while a
    /// DeviceWait lives.
    void words_wait() noexcept;
    /// The words that one call of `words_wait` was for have been set.
    void words_set() noexcept;
    /// Whether there are such streams now.
    [[nodiscard]] bool words_waiting() const noexcept { return words_or_waits_.load() > 0; }

    struct Try {}; ///< as std::try_to_lock

    /// While one lives, no stream begins to wait for words; until those that do so have gone on, making one waits. Not
    /// for the threads that set words.
    class DeviceWait {
    public:
        /// Waits until no stream waits for words.
        explicit DeviceWait(Neighbours& neighbours) noexcept;
        /// Does not wait: where a stream waits for words now, this is none.
        DeviceWait(Neighbours& neighbours, Try) noexcept;
        DeviceWait(const DeviceWait&) = delete;
        DeviceWait& operator=(const DeviceWait&) = delete;
        ~DeviceWait();
        /// False only after `Try`, where a stream waited for words.
        [[nodiscard]] bool owns() const noexcept { return neighbours_ != nullptr; }

    private:
        Neighbours* neighbours_; // null: it is none
    };

    /// The machine's copies in one direction.
    struct Lane {
        std::atomic<unsigned> transfers{0};  ///< that put copies there
        std::atomic<bool> held_up{false};    ///< as the last that watched its copies saw it,
        std::atomic<std::int64_t> looked{0}; ///< and when: nanoseconds of the steady clock
    };
    /// The same for all who ask.
    [[nodiscard]] Lane& lane(Direction direction) noexcept { return lanes_[direction == Direction::out ? 0 : 1]; }

private:
    struct Books; // who has joined
    std::unique_ptr<Books> books_;
    /// Adds 1 or -1, once what is there has that sign or is 0.
    void take_part(int one) noexcept;
    /// Answers whether it could do so without waiting.
    [[nodiscard]] bool try_part(int one) noexcept;
    void end_part(int one) noexcept;

    std::atomic<int> words_or_waits_{0}; // how many wait for words; negative: how many DeviceWaits live
    Lane lanes_[2];
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/neighbours.ipp"
#endif
