// A block that grows where it is: addresses up to a cap, memory behind the first part of them. Names no driver.
// Does not know what it is used for.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/transfer/range.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Owns its addresses and its memory, which is paused, resumed and counted with its arena's. Gives both back when it
/// dies, as `deallocate` does; what fails then is told to the arena's event sink. After the arena has been closed it
/// does nothing. Must not outlive its arena. Not thread safe.
class GrowingBlock {
public:
    GrowingBlock(const GrowingBlock&) = delete;
    GrowingBlock& operator=(const GrowingBlock&) = delete;
    virtual ~GrowingBlock() = default;

    /// Memory behind at least the first `bytes`, taken in whole pages and never more than asked for; content undefined
    /// where it is new. Throws Misuse (beyond the cap, paused, closed), OutOfMemory, OutOfHostMemory, or what a failing
    /// driver call stands for; then nothing has changed. Does not wait for the device, and leaves stream captures
    /// whole.
    virtual void grow(std::size_t bytes) = 0;

    /// How its end gives it up, if not as work of the whole device so far: replays may touch it longer.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }

    [[nodiscard]] Address address() const noexcept { return reserved_.address; }
    /// Bytes with memory behind them, paused or not.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Bytes of addresses.
    [[nodiscard]] std::size_t cap() const noexcept { return reserved_.bytes; }

protected:
    GrowingBlock() = default;

    Range reserved_{};
    std::size_t bytes_ = 0;
    FreeOrder order_{};
};

/// The addresses of an arena's growing blocks, so that nobody but their owners gives them up. Thread safe; costs a load
/// where there are none.
class GrowingRanges {
public:
    void add(Range range) {
        const std::lock_guard lock{mutex_};
        ranges_.push_back(range);
        count_.store(ranges_.size());
    }
    void remove(Range range) noexcept {
        const std::lock_guard lock{mutex_};
        std::erase(ranges_, range);
        count_.store(ranges_.size());
    }
    [[nodiscard]] bool hold(Address address) noexcept {
        if (count_.load(std::memory_order_relaxed) == 0) return false;
        const std::lock_guard lock{mutex_};
        return std::any_of(ranges_.begin(), ranges_.end(),
                           [&](const Range& range) { return range.address <= address && address < range.end(); });
    }

private:
    std::mutex mutex_;
    std::atomic<std::size_t> count_{0};
    std::vector<Range> ranges_;
};

} // namespace memsaver::inline v0_1
