// Blocks and ranges whose addresses belong to somebody else than the arena's allocator.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/order.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A block that grows. Owns its addresses and its memory, which is paused, resumed and counted with the arena's. The
/// destructor frees both as `deallocate` does; failures go to the arena's event sink. After the arena is closed, the
/// destructor does nothing. Must not outlive its arena. Not thread-safe.
class GrowingBlock {
public:
    GrowingBlock(const GrowingBlock&) = delete;
    GrowingBlock& operator=(const GrowingBlock&) = delete;
    virtual ~GrowingBlock() = default;

    /// Ensures that at least the first `bytes` have memory. Takes whole pages and never more than requested; the
    /// content of new memory is undefined. Throws Misuse (beyond the cap, paused, closed), OutOfMemory,
    /// OutOfHostMemory, or the error of a failing driver call; then nothing has changed. Does not wait for the device,
    /// only for an operation that is in progress, and does not break stream captures.
    virtual void grow(std::size_t bytes) = 0;

    /// Returns whether memory can be added only once.
    [[nodiscard]] virtual bool grows_once() const noexcept { return false; }

    /// Sets how the destructor frees the memory; by default, after all device work submitted until then. Graph replays
    /// may use the memory for longer.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }

    [[nodiscard]] Address address() const noexcept { return reserved_.address; }
    /// Returns the bytes that have memory, paused or not.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Returns the bytes of reserved addresses.
    [[nodiscard]] std::size_t cap() const noexcept { return reserved_.bytes; }

protected:
    GrowingBlock() = default;

    Range reserved_{};
    std::size_t bytes_ = 0;
    FreeOrder order_{};
};

/// The addresses of an arena's growing blocks and elastic ranges, which only their owners may free. Thread-safe. Costs
/// one load if there are none.
class OwnedRanges {
public:
    /// `step`: step size of an elastic range, otherwise 0.
    void add(Range range, std::size_t step = 0);
    void remove(Range range) noexcept;
    [[nodiscard]] bool hold(Address address) noexcept;
    /// Splits `ranges` (sorted) where a step of an elastic range begins or ends, because no handle may span such a
    /// border.
    [[nodiscard]] std::vector<Range> cut(std::vector<Range> ranges);

private:
    struct Owned {
        Range range;
        std::size_t step;
    };
    std::mutex mutex_;
    std::atomic<std::size_t> count_{0};
    std::vector<Owned> ranges_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/owned_ranges.ipp"
#endif
