// Shared pages that stand behind paused addresses, and which addresses they stand behind. Does not know who paused
// them.
#pragma once

#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/base/quarantine.hpp"
#include "memsaver/memory/memory.hpp"
#include "memsaver/transfer/range.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// The blocks of one device: one of each size from the granularity to `block_bytes` by doubling, taken when first
/// needed, and given back when no address needs them. Thread safe.
template <Driver D>
class QuarantineBlocks {
public:
    QuarantineBlocks(D driver, Quarantine options) : driver_{std::move(driver)}, options_{options} {}

    [[nodiscard]] const D& driver() const noexcept { return driver_; }

    /// Maps blocks behind all of `range`, which has no pages, for reading. On failure nothing is mapped, unless not
    /// even that could be undone: then `left` is what still is.
    Status cover(Range range, Range& left) noexcept {
        const std::lock_guard lock{mutex_};
        std::size_t done = 0;
        Status status = open();
        while (status.ok() && done < range.bytes) {
            PhysicalBlock<D>* block = nullptr;
            status = block_for(range.bytes - done, block);
            if (status.ok()) status = driver_.map(range.address + done, block->bytes(), block->handle());
            if (status.ok()) done += block->bytes();
        }
        if (status.ok()) status = allow_reading(range);
        if (status.ok()) users_ += 1;
        if (!status.ok() && done != 0 && !driver_.unmap(range.address, done).ok()) {
            left = {range.address, done};
            users_ += 1;
        }
        if (users_ == 0) (void)close();
        return status;
    }
    /// Takes them away again. On failure they stay.
    Status uncover(Range range) noexcept {
        const Status status = driver_.unmap(range.address, range.bytes);
        if (!status.ok()) return status;
        const std::lock_guard lock{mutex_};
        if (--users_ == 0) (void)close();
        return status;
    }

    /// Tries again to give back what no address needs. Answers the first failure.
    Status retry() noexcept {
        const std::lock_guard lock{mutex_};
        return users_ == 0 ? close() : Status{};
    }

    /// Physical bytes that it holds now.
    [[nodiscard]] std::size_t bytes() const noexcept {
        const std::lock_guard lock{mutex_};
        std::size_t sum = 0;
        for (const PhysicalBlock<D>& block : blocks_) sum += block.bytes();
        return sum;
    }

private:
    Status allow_reading(Range range) noexcept {
        if constexpr (ReadOnlyPages<D>) return driver_.allow_reading(range.address, range.bytes);
        return {StatusKind::other, 0, "this driver has no read-only pages"};
    }
    Status open() noexcept {
        if (granularity_ != 0) return {};
        const Status status = driver_.granularity(granularity_);
        if (!status.ok()) granularity_ = 0;
        return status;
    }
    /// The largest that is no larger than `bytes`, a multiple of the granularity.
    Status block_for(std::size_t bytes, PhysicalBlock<D>*& block) noexcept {
        const std::size_t most = std::max<std::size_t>(1, options_.block_bytes / granularity_);
        const std::size_t units = std::bit_floor(std::min(bytes / granularity_, most));
        const auto index = static_cast<std::size_t>(std::bit_width(units)) - 1;
        block = &blocks_[index];
        return block->owns() ? Status{} : block->create(driver_, units * granularity_);
    }
    /// What the driver refuses to take back is tried again by the next call, or at the end.
    Status close() noexcept {
        Status first;
        for (PhysicalBlock<D>& block : blocks_) {
            if (const Status status = block.release(); first.ok()) first = status;
        }
        return first;
    }

    D driver_;
    Quarantine options_;
    mutable std::mutex mutex_;
    std::size_t granularity_ = 0;
    std::size_t users_ = 0; // ranges that are covered
    std::array<PhysicalBlock<D>, 64> blocks_;
};

/// The covered ranges of one arena. Under the arena's turn.
template <Driver D>
class QuarantinedRanges {
public:
    /// Without blocks it covers nothing.
    explicit QuarantinedRanges(std::shared_ptr<QuarantineBlocks<D>> blocks = {}) : blocks_{std::move(blocks)} {}
    QuarantinedRanges(const QuarantinedRanges&) = delete;
    QuarantinedRanges& operator=(const QuarantinedRanges&) = delete;
    ~QuarantinedRanges() { (void)uncover(); } // the addresses are given back next

    /// Room to cover so many ranges, so that `cover` needs no memory. May throw bad_alloc.
    void reserve(std::size_t ranges) {
        if (blocks_) covered_.reserve(covered_.size() + ranges);
    }
    /// Covers ranges without pages, each as far as it goes: it is an aid, so that what fails is answered and no more.
    Status cover(const std::vector<Range>& ranges) noexcept {
        Status first;
        if (!blocks_) return first;
        for (const Range& range : ranges) {
            if (covered_.size() == covered_.capacity()) break;
            Range left{};
            const Status status = blocks_->cover(range, left);
            if (status.ok()) covered_.push_back(range);
            if (left.bytes != 0) covered_.push_back(left);
            if (first.ok()) first = status;
        }
        return first;
    }
    /// Uncovers everything. What fails stays covered.
    Status uncover() noexcept {
        Status first;
        std::erase_if(covered_, [&](const Range& range) {
            const Status status = blocks_->uncover(range);
            if (first.ok()) first = status;
            return status.ok() || status.kind == StatusKind::gone;
        });
        return first;
    }
    /// Tries again to give back shared blocks that nobody needs any more. Answers the first failure.
    Status retry() noexcept { return blocks_ ? blocks_->retry() : Status{}; }
    /// Uncovers what overlaps `ranges` (sorted); what lies beside them in it, to be covered again, is in `rest` then.
    /// What fails stays covered. May throw bad_alloc.
    Status uncover(const std::vector<Range>& ranges, std::vector<Range>& rest) {
        Status first;
        std::vector<Range> gone;
        gone.reserve(covered_.size());
        std::erase_if(covered_, [&](const Range& range) {
            const auto here = [&](const Range& one) { return overlap(one, range); };
            if (std::none_of(ranges.begin(), ranges.end(), here)) return false;
            const Status status = blocks_->uncover(range);
            if (first.ok()) first = status;
            if (status.ok()) gone.push_back(range);
            return status.ok();
        });
        sort_by_address(gone);
        rest = without(gone, ranges);
        return first;
    }

private:
    std::shared_ptr<QuarantineBlocks<D>> blocks_;
    std::vector<Range> covered_;
};

} // namespace memsaver::inline v0_1
