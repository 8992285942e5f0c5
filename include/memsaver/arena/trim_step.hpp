// A trim of one arena: extents in which no block lives go back to the device.
#pragma once

#include "memsaver/arena/arena_core.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Begun by construction, then: wait for the device, `idle`, `release`, `commit`. Move-only.
template <Driver D>
class TrimStep {
public:
    TrimStep(ArenaCore<D>& core, Turn::Hold turn) : TrimStep{core} { (void)turn_.emplace(std::move(turn)); }
    /// Within a turn that the caller holds.
    explicit TrimStep(ArenaCore<D>& core) : core_{&core}, fence_{core.memory_.heaps.fences().begin()} {
        row_.tag = core.tag();
        row_.device = core.device();
    }
    TrimStep(TrimStep&&) noexcept = default;
    TrimStep& operator=(TrimStep&&) = delete;

    [[nodiscard]] const D& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }
    [[nodiscard]] static constexpr bool empty() noexcept { return false; }
    [[nodiscard]] static constexpr bool takes() noexcept { return true; } // freed blocks may be waiting for the device

    /// The device's work that was submitted before the trim has passed, so blocks freed before it are free.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept {
        row_.waited = waited;
        if (whole_device) core_->memory_.heaps.fences().finish(fence_);
    }

    /// Gives back what is free as a whole. What fails stays, and is reported by `commit`.
    void release() noexcept {
        try {
            if (const Status status = core_->memory_.retry_held(row_.released_bytes); !status.ok()) note(status);
            if (turn_) core_->slots_.forget_dead(); // not in the middle of somebody's step
            std::vector<Extent<D>> unused = take_unused();
            for (Extent<D>& extent : unused) give_back(extent);
            const std::lock_guard lock{core_->memory_.pages.mutex};
            core_->memory_.pages.in_hand -= unused.size();
        } catch (const std::bad_alloc&) { // before anything was taken out
            note({StatusKind::out_of_host_memory, 0, "no host memory for the books of a trim"});
        }
    }

    /// Ends the trim. The first failure of `release`, if any, is in `status`.
    TagReport commit(Status& status) noexcept {
        status = failure_;
        row_.held_bytes = core_->memory_.held_bytes();
        return std::move(row_);
    }

private:
    void note(const Status& status) noexcept {
        if (failure_.ok()) failure_ = status;
    }

    /// Gone, active again or held: whatever fails, it is in the books.
    void give_back(Extent<D>& extent) noexcept {
        auto& pages = core_->memory_.pages;
        const Range range{extent.address(), extent.bytes()};
        Status status = extent.unmap();
        if (!status.ok() && open_again(range)) {
            note(status);
            const std::lock_guard lock{pages.mutex};
            pages.active.push_back(std::move(extent)); // room for it is kept while it is in hand
            return;
        }
        if (status.ok()) status = pages.release(extent);
        if (status.ok()) {
            row_.released_bytes += range.bytes;
            try {
                return pages.give_addresses(range);
            } catch (const std::bad_alloc&) { // held without pages, for its addresses
                status = {StatusKind::out_of_host_memory, 0, "no host memory to note free addresses"};
            }
        }
        note(status);
        pages.hold(std::move(extent), true, status);
    }
    bool open_again(Range range) noexcept {
        try {
            core_->memory_.heaps.add(range);
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    std::vector<Extent<D>> take_unused() {
        const std::lock_guard growing{core_->memory_.growing};
        const std::vector<Range> free =
            core_->memory_.heaps.free_ranges(core_->memory_.pages.granularity(), Side::open);
        const std::lock_guard lock{core_->memory_.pages.mutex};
        std::vector<Extent<D>> unused;
        unused.reserve(core_->memory_.pages.active.size());
        std::erase_if(core_->memory_.pages.active, [&](Extent<D>& extent) {
            const Range range{extent.address(), extent.bytes()};
            const bool is_free = std::any_of(free.begin(), free.end(), [&](const Range& held) {
                return held.address <= range.address && range.end() <= held.end();
            });
            if (!is_free || !take_out(range)) return false;
            unused.push_back(std::move(extent));
            return true;
        });
        core_->memory_.pages.in_hand += unused.size();
        return unused;
    }

    /// No host memory for it: then it stays, which is no failure of a trim.
    bool take_out(Range range) noexcept {
        try {
            return core_->memory_.heaps.remove_if_free(range, Side::open);
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    std::optional<Turn::Hold> turn_;
    ArenaCore<D>* core_;
    std::uint64_t fence_;
    TagReport row_;
    Status failure_;
};

/// Gives back what nobody uses, waiting for nothing, within a turn that the caller holds. Answers how many bytes; what
/// fails is tried again by the next call.
template <Driver D>
std::size_t trim_now(ArenaCore<D>& core) {
    TrimStep<D> step{core};
    step.release();
    Status ignored;
    return step.commit(ignored).released_bytes;
}

} // namespace memsaver::inline v0_1
