// A pause of one arena, in the steps that let several arenas pause together.
#pragma once

#include "memsaver/arena/arena_core.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Begun by construction, then: wait for the device, `idle`, `enqueue`, `wait`, `release`, `commit`. What is dropped
/// before `release` was called has changed nothing. From the beginning on the arena's memory serves no allocation (new
/// ones come from fresh extents), and blocks that are given up stay as they are until the end. Move-only.
template <Driver D>
class PauseStep {
public:
    /// `once`: the policy for this pause, if not the tag's own. Throws OutOfHostMemory; then nothing changed.
    PauseStep(ArenaCore<D>& core, Turn::Hold turn, const std::optional<AnyBackup<D>>& once)
        : turn_{std::move(turn)}, core_{&core}, once_{once.has_value()},
          slot_{once ? std::shared_ptr<AnySlot>{once->open(core.driver())} : core.slots_.own},
          fence_{core.memory_.heaps.fences().begin()} {
        row_.tag = core.tag();
        row_.device = core.device();
        // What an earlier call could not give back belongs to this one: it has not done its work while that is held.
        if (const Status status = core.memory_.retry_held(row_.released_bytes); !status.ok()) note(status);
        core.slots_.forget_dead();
        const std::lock_guard growing{core.memory_.growing};
        const std::lock_guard lock{core.memory_.pages.mutex};
        const std::size_t count = core.memory_.pages.active.size();
        ranges_.reserve(count);
        paused_.reserve(count);
        left_.reserve(count);
        core.memory_.quarantined.reserve(count);
        core.memory_.pages.paused.reserve(core.memory_.pages.paused.size() + 1);
        std::vector<Extent<D>> none;
        none.reserve(core.memory_.pages.active.capacity());
        for (const Extent<D>& extent : core.memory_.pages.active) ranges_.push_back({extent.address(), extent.bytes()});
        sort_by_address(ranges_);
        core.memory_.heaps.begin_operation(count != 0); // the last that may throw
        extents_ = std::exchange(core.memory_.pages.active, std::move(none));
        core.memory_.pages.in_hand += count;
        core.memory_.pausing = count != 0;
    }
    PauseStep(PauseStep&& other) noexcept
        : turn_{std::move(other.turn_)}, core_{std::exchange(other.core_, nullptr)}, once_{other.once_},
          enqueued_{other.enqueued_}, slot_{std::move(other.slot_)}, fence_{other.fence_},
          ranges_{std::move(other.ranges_)}, extents_{std::move(other.extents_)}, left_{std::move(other.left_)},
          paused_{std::move(other.paused_)}, ticket_{std::move(other.ticket_)}, saving_{std::move(other.saving_)},
          row_{std::move(other.row_)}, failure_{other.failure_} {}
    PauseStep& operator=(PauseStep&&) = delete;
    ~PauseStep() {
        if (core_ != nullptr) (void)finish();
    }

    [[nodiscard]] const D& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }
    /// Nothing to pause, and nothing to tell: it has not even given back what an earlier call had to hold.
    [[nodiscard]] bool empty() const noexcept { return !takes() && failure_.ok() && row_.released_bytes == 0; }
    /// Whether it takes memory away, so that somebody's work has to be waited for.
    [[nodiscard]] bool takes() const noexcept { return !ranges_.empty(); }

    /// The device's work that was submitted before the pause has passed.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept {
        row_.waited = waited;
        if (whole_device) core_->memory_.heaps.fences().finish(fence_);
    }

    /// Starts saving. Throws what the policy throws.
    void enqueue() {
        if (ranges_.empty()) return;
        saving_ = Span{core_->options().events, core_->tag(), core_->device(), "save"};
        if (once_) core_->slots_.own->invalidate(); // what it may hold of these bytes is not what they will be
        enqueued_ = true;
        ticket_ = slot_->save(core_->slots_.live_set(ranges_, "saving"));
    }
    [[nodiscard]] Ticket& ticket() noexcept { return ticket_; }

    /// Waits until every byte has been saved. Throws if one could not be.
    void wait() {
        core_->slots_.check_moved(ticket_.wait(), "save bytes", ticket_.bytes());
        row_.saved_bytes = ticket_.bytes();
        saving_.end();
    }

    /// Gives the pages back. What fails is kept, and reported by `commit`.
    void release() noexcept {
        for (Extent<D>& extent : extents_) {
            if (const Status status = extent.unmap(); !status.ok()) {
                note(status);
                left_.push_back(std::move(extent)); // stays active
                continue;
            }
            paused_.push_back({extent.address(), extent.bytes()});
            if (const Status status = core_->memory_.pages.release(extent); !status.ok()) {
                note(status);
                core_->memory_.pages.hold(std::move(extent), false, status);
            } else {
                row_.released_bytes += extent.bytes();
            }
        }
        extents_ = std::move(left_);
        core_->memory_.cover(paused_);
    }

    /// Ends the operation. The first failure of `release`, if any, is in `status`.
    TagReport commit(Status& status) {
        status = failure_;
        row_.held_bytes = core_->memory_.held_bytes();
        return finish();
    }

private:
    void note(const Status& status) noexcept {
        if (failure_.ok()) failure_ = status;
    }

    TagReport finish() noexcept {
        ArenaCore<D>& core = *std::exchange(core_, nullptr);
        ticket_ = {};
        const bool whole = extents_.empty();
        if (!whole && enqueued_) slot_->invalidate(); // what stays may change before it is saved again
        sort_by_address(paused_);
        ranges_ = {};
        {
            const std::lock_guard lock{core.memory_.pages.mutex};
            core.memory_.pages.in_hand -= paused_.size();
            core.memory_.pages.activate(extents_);
            core.memory_.pausing = false;
            if (!paused_.empty()) core.memory_.pages.paused.push_back({std::move(paused_), std::move(slot_)});
        }
        core.memory_.end_operation(whole);
        core.slots_.retire(std::move(slot_)); // unless it holds something
        return std::move(row_);
    }

    Turn::Hold turn_;
    ArenaCore<D>* core_;
    bool once_;
    bool enqueued_ = false;
    std::shared_ptr<AnySlot> slot_;
    std::uint64_t fence_;
    std::vector<Range> ranges_;      // of all extents concerned, sorted
    std::vector<Extent<D>> extents_; // taken from the arena, active
    std::vector<Extent<D>> left_;    // those that could not be unmapped
    std::vector<Range> paused_;      // those that were
    Ticket ticket_;
    Span saving_;
    TagReport row_;
    Status failure_;
};

} // namespace memsaver::inline v0_1
