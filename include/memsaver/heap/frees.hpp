// When freed blocks can be reused: fences of the whole device, and marks in streams. Knows nothing about who owned the
// blocks.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/heap/deferred_frees.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Events that no mark needs. Thread-safe, without a lock; a thread looks first where it leaves its own, so that
/// events, and what the driver keeps with them, stay on its core.
class SpareEvents {
public:
    /// Keeps an event, or takes one, if `event` is none. Returns the one that was taken, or for which there is no room.
    EventRef exchange(EventRef event) noexcept {
        const std::size_t first = std::hash<std::thread::id>{}(std::this_thread::get_id());
        for (std::size_t i = 0; i < places_.size(); ++i) {
            std::atomic<EventRef>& place = places_[(first + i) % places_.size()];
            EventRef now = place.load(std::memory_order_relaxed);
            if (static_cast<bool>(now) != static_cast<bool>(event) && place.compare_exchange_strong(now, event))
                return now;
        }
        return event;
    }

private:
    std::array<std::atomic<EventRef>, 64> places_{};
};

/// The freed blocks of an arena that wait for work, and the count of *fences*: moments at which all work submitted to
/// the device before is known to be complete.
///
/// Guarded by the arena's mutex, which callers pass locked; it is given up during every call of the driver and every
/// wait. The methods of fences that take no lock are thread-safe.
class Frees : public DeferredFrees {
public:
    using Lock = std::unique_lock<std::mutex>;

    /// Locks the mutex for a short step: tries for up to 0.2 ms, ever more rarely, before the thread sleeps.
    /// To put it to sleep and to wake it takes longer than most waits, and each try, like each change of owner, moves
    /// the tables of blocks to another core: eight threads are ten times as fast if they try rarely (decision 32).
    [[nodiscard]] static Lock lock(std::mutex& mutex) {
        for (int spins = 32; spins <= 4096; spins *= 2) {
            if (mutex.try_lock()) return Lock{mutex, std::adopt_lock};
            for (int i = 0; i < spins; ++i) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                asm volatile("yield");
#endif
            }
        }
        return Lock{mutex};
    }

    explicit Frees(const AnyDriver& driver) noexcept : driver_{driver} {}
    ~Frees() = default;

    // --- deallocation ---

    /// A place in a stream, at which a block was freed. Closes an event that it still has when it is destroyed, which
    /// must be without the lock.
    class Place {
    public:
        explicit Place(Frees& frees) noexcept : frees_{frees} {}
        Place& operator=(Place&&) = delete;
        ~Place() {
            if (mark_.event) (void)frees_.driver_.close_event(mark_.event);
        }
        /// Records an event at the place. Takes no lock.
        Status record(StreamRef stream) noexcept {
            const AnyDriver& driver = frees_.driver_;
            mark_ = {frees_.spare_.exchange({}), ++frees_.last_number_};
            if (mark_.event) {
                if (driver.record(mark_.event, stream).ok()) return {};
                (void)driver.close_event(mark_.event); // it was made for a stream of another context
                mark_.event = {};
            }
            const Status status = driver.open_event(stream, mark_.event);
            return status.ok() ? driver.record(mark_.event, stream) : status;
        }

    private:
        friend class Frees;
        Frees& frees_;
        Mark mark_;
    };

    /// Adds a block. Strong exception guarantee: may throw std::bad_alloc. Requires the lock.
    void after_stream(Address address, std::size_t bytes, StreamRef stream, Place& place) {
        place.mark_.event = DeferredFrees::after_stream(address, bytes, stream, place.mark_);
    }
    /// Keeps the event of a place that was not needed. Requires the lock, and that `clear` was not called.
    void give_back(Place& place) noexcept {
        if (place.mark_.event) place.mark_.event = spare_.exchange(place.mark_.event);
    }
    /// Adds a block that waits for the next fence. As above.
    void after_fence(Address address, std::size_t bytes) { DeferredFrees::after_fence(address, bytes, begun_); }

    // --- reuse ---

    /// Returns whether work which is submitted to this stream now may reuse what was freed with it. Takes no lock.
    [[nodiscard]] bool reusable_in(StreamRef stream) const noexcept {
        if (stream.per_thread()) return false; // that handle is another stream on each thread
        // Captured work runs later, in any stream: the work that the block waits for may not have completed by then.
        bool capturing = true;
        return driver_.capturing(stream, capturing).ok() && !capturing;
    }
    /// Calls `reclaim(address)` for blocks whose work has completed. Returns whether there was any.
    bool collect(Lock& lock, Visit reclaim) {
        bool any = DeferredFrees::collect(done_, reclaim);
        for (std::size_t i = streams(); i-- > 0;) { // downwards: no list is passed over if others go
            for (bool passed = true; passed && i < streams();) {
                const Question asked = ask(i);
                if (asked.elsewhere) {
                    changed_.wait(lock);
                    continue;
                }
                if (!asked.mark.event) break;
                lock.unlock();
                passed = false;
                if (!driver_.query(asked.mark.event, passed).ok()) passed = false;
                lock.lock();
                if (EventRef over = answer(asked, passed, reclaim))
                    close(lock, cleared_ ? over : spare_.exchange(over));
                any = any || passed;
                changed_.notify_all();
            }
        }
        return any;
    }
    /// Forgets all blocks, and closes all events.
    void clear(Lock& lock) noexcept {
        cleared_ = true; // from now on, none is spare
        while (const EventRef event = DeferredFrees::clear()) close(lock, event);
        while (const EventRef event = spare_.exchange({})) close(lock, event);
    }

    // --- fences ---

    /// Call `begin_fence` before waiting for the device, and `finish_fence` with its number after a successful wait.
    std::uint64_t begin_fence() noexcept { return ++begun_; }
    void finish_fence(std::uint64_t fence) noexcept {
        std::uint64_t done = done_;
        while (done < fence && !done_.compare_exchange_weak(done, fence)) {
        }
    }
    /// Waits for the device, which is a fence. Takes no lock.
    Status drain() noexcept {
        const std::uint64_t fence = begin_fence();
        const Status status = driver_.drain();
        if (status.ok()) finish_fence(fence);
        return status;
    }
    [[nodiscard]] std::uint64_t last_begun() const noexcept { return begun_; }
    [[nodiscard]] std::uint64_t last_done() const noexcept { return done_; }

    /// Returns whether to wait for the device, so that freed memory can be reused, rather than to map `growth` more
    /// bytes. A wait costs microseconds on an idle device, and any time on a busy one, to which other threads submit no
    /// work in the meantime; so a small amount of waiting memory does not justify it.
    [[nodiscard]] bool fence_is_worth_it(Lock& lock, std::size_t growth) {
        const std::size_t waiting = fenced_bytes();
        if (waiting < std::max(growth, least_threshold)) return false;
        if (threshold_ == 0) {
            lock.unlock();
            DeviceMemory memory;
            const bool known = driver_.memory(memory).ok();
            lock.lock();
            if (known) threshold_ = std::clamp(memory.total_bytes / 512, least_threshold, most_threshold);
        }
        return waiting >= threshold_;
    }
    /// Waits for the whole device. Keeps stream captures intact; launches by other threads may block in the meantime.
    /// Threads that arrive during a wait share the next one. `collect` then finds the reusable blocks.
    void fence(Lock& lock) { pass(lock, begun_ + 1); }
    /// Like `fence`, but waits only for the block that has waited longest, if there is one: often a wait that another
    /// thread has begun.
    void fence_oldest(Lock& lock) {
        const std::uint64_t oldest = first_fence();
        pass(lock, oldest == 0 ? begun_ + 1 : oldest);
    }

private:
    /// Bytes that do not justify a fence, which takes 2 to 3 us on an idle device: a five-hundredth of the device's
    /// memory, within these bounds.
    static constexpr std::size_t least_threshold = 32_MiB;
    static constexpr std::size_t most_threshold = 128_MiB;

    /// Waits until the fence `wanted` is done; it is at most the next one to begin.
    void pass(Lock& lock, std::uint64_t wanted) {
        for (int i = 0; i < 50 && fencing_ && done_ < wanted;
             ++i) {        // a sleeping thread wakes up later than an idle device
            lock.unlock(); // completes
            std::this_thread::yield();
            lock.lock();
        }
        changed_.wait(lock, [&] { return done_ >= wanted || !fencing_; });
        if (done_ >= wanted) return;
        fencing_ = true;
        lock.unlock();
        const Status status = drain();
        lock.lock();
        fencing_ = false;
        changed_.notify_all();
        check(status, "wait for the device before reusing freed memory");
    }
    void close(Lock& lock, EventRef event) const noexcept {
        if (!event) return;
        lock.unlock();
        (void)driver_.close_event(event);
        lock.lock();
    }

    const AnyDriver& driver_;
    SpareEvents spare_;
    std::atomic<std::uint64_t> last_number_{0}; // of a block freed with a stream
    std::condition_variable changed_;           // a fence is over, or an event has been queried
    bool cleared_ = false;
    bool fencing_ = false;      // a thread waits for the device, and others wait for that thread
    std::size_t threshold_ = 0; // 0: the device has not been asked yet
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> done_{0};
};

} // namespace memsaver::inline v0_3::detail
