// Definitions of frees.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/heap/frees.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Frees::Lock Frees::lock(std::mutex& mutex) {
    for (int spins = 1; spins <= 64; spins *= 2) {
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

MEMSAVER_INLINE void Frees::close(Lock& lock, EventRef event) const noexcept {
    if (!event) return;
    lock.unlock();
    (void)driver_.close_event(event);
    lock.lock();
}

MEMSAVER_INLINE void Frees::record(Place& place, StreamRef stream, std::size_t bytes, Address address) const {
    if (place.mark_.event && driver_.record(place.mark_.event, stream).ok()) return;
    Place fresh{driver_}; // none to spare, or that was made for a stream of another context
    Status status = driver_.open_event(stream, fresh.mark_.event);
    if (status.ok()) status = driver_.record(fresh.mark_.event, stream);
    check(status, "record a CUDA event for a deallocation", bytes, address);
    std::swap(place.mark_.event, fresh.mark_.event);
}

MEMSAVER_INLINE void Frees::after_stream(Address address, std::size_t bytes, StreamRef stream, Place& place) {
    place.mark_.event = deferred_.after_stream(address, bytes, stream, place.mark_);
}

MEMSAVER_INLINE bool Frees::reusable_in(Lock& lock, StreamRef stream) {
    if (stream.per_thread() || !deferred_.waits(stream)) return false; // that handle is another stream on each thread
    // Captured work runs later, in any stream: the work that the block waits for may not have completed by then.
    lock.unlock();
    bool capturing = true;
    const bool eager = driver_.capturing(stream, capturing).ok() && !capturing;
    lock.lock();
    return eager;
}

MEMSAVER_INLINE bool Frees::collect(Lock& lock, Visit reclaim) {
    bool any = deferred_.collect(done_, reclaim);
    for (std::size_t i = deferred_.streams(); i-- > 0;) { // downwards: no list is passed over if others go
        for (bool passed = true; passed && i < deferred_.streams();) {
            const DeferredFrees::Question asked = deferred_.ask(i);
            if (asked.elsewhere) {
                changed_.wait(lock);
                continue;
            }
            if (!asked.mark.event) break;
            lock.unlock();
            passed = false;
            if (!driver_.query(asked.mark.event, passed).ok()) passed = false;
            lock.lock();
            close(lock, deferred_.answer(asked, passed, reclaim));
            any = any || passed;
            changed_.notify_all();
        }
    }
    return any;
}

MEMSAVER_INLINE void Frees::clear(Lock& lock) noexcept {
    while (const EventRef event = deferred_.clear()) close(lock, event);
}

MEMSAVER_INLINE bool Frees::fence_is_worth_it(Lock& lock, std::size_t growth) {
    const std::size_t waiting = deferred_.fenced_bytes();
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

MEMSAVER_INLINE void Frees::finish_fence(std::uint64_t fence) noexcept {
    std::uint64_t done = done_;
    while (done < fence && !done_.compare_exchange_weak(done, fence)) {
    }
}

MEMSAVER_INLINE void Frees::pass(Lock& lock, std::uint64_t wanted) {
    for (int i = 0; i < 50 && fencing_ && done_ < wanted; ++i) { // a sleeping thread wakes up later than an idle device
        lock.unlock();                                           // completes
        std::this_thread::yield();
        lock.lock();
    }
    changed_.wait(lock, [&] { return done_ >= wanted || !fencing_; });
    if (done_ >= wanted) return;
    fencing_ = true;
    const std::uint64_t fence = begin_fence();
    lock.unlock();
    const Status status = driver_.drain();
    if (status.ok()) finish_fence(fence);
    lock.lock();
    fencing_ = false;
    changed_.notify_all();
    check(status, "wait for the device before reusing freed memory");
}

} // namespace detail

} // namespace memsaver::inline v0_3
