// A block allocator that several threads share, with the blocks that cannot be reused yet. Knows no pages.
#pragma once

#include "memsaver/arena/block_allocator.hpp"
#include "memsaver/arena/deferred_frees.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace memsaver::inline v0_1 {

/// The count of fences: moments at which everything that the device had been given is known to have passed.
class Fences {
public:
    [[nodiscard]] std::uint64_t last_begun() const noexcept { return begun_.load(); }
    [[nodiscard]] std::uint64_t last_done() const noexcept { return done_.load(); }

    /// Before waiting for the device; its number is for `finish`, after a wait that succeeded.
    std::uint64_t begin() noexcept { return begun_.fetch_add(1) + 1; }
    void finish(std::uint64_t fence) noexcept {
        std::uint64_t done = done_.load();
        while (done < fence && !done_.compare_exchange_weak(done, fence)) {
        }
    }

    /// Waits for a fence that begins from now on. Threads that come while one waits share the next wait, and go on as
    /// soon as that one is over.
    template <Streams D>
    void pass(const D& driver) {
        const std::uint64_t wanted = last_begun() + 1;
        std::unique_lock lock{mutex_};
        passed_.wait(lock, [&] { return last_done() >= wanted || !passing_; });
        if (last_done() >= wanted) return;
        passing_ = true;
        const std::uint64_t number = begin();
        lock.unlock();
        const Status status = driver.drain();
        lock.lock();
        if (status.ok()) finish(number);
        passing_ = false;
        lock.unlock();
        passed_.notify_all();
        check(status, "wait for the device before freed memory is reused");
    }

private:
    std::mutex mutex_;
    std::condition_variable passed_;
    bool passing_ = false; // a thread waits for the device, and others for it
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> done_{0};
};

/// Everything below is guarded by `mutex`.
template <Streams D>
struct Heap {
    Heap(std::size_t seam, std::uint64_t first_serial) : blocks{seam, first_serial} {}

    /// Makes blocks whose work has passed free again, and tells `freed(range)` what free range each became part of.
    template <class Freed>
    void collect(const D& driver, const Fences& fences, Freed&& freed) {
        deferred.collect(driver, fences.last_done(), [&](Address address) { freed(blocks.reclaim(address)); });
    }

    /// See BlockAllocator::allocate; collects before it answers nullptr.
    const Block* allocate(const D& driver, const Fences& fences, std::size_t bytes, std::size_t alignment,
                          std::size_t requested) {
        if (const Block* block = blocks.allocate(bytes, alignment, requested)) return block;
        collect(driver, fences, [](Range) {});
        return blocks.allocate(bytes, alignment, requested);
    }

    std::mutex mutex;
    BlockAllocator blocks;
    DeferredFrees<D> deferred;
};

} // namespace memsaver::inline v0_1
