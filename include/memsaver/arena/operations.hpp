// The operations of one arena, in steps: pause, resume and trim. run_steps.hpp runs those of many arenas together.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// What all operations of one arena have: its turn, and a row of the report.
class ArenaCore::Step {
public:
    Step(const Step&) = delete;
    Step& operator=(Step&&) = delete;

    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); } // not after the step has ended
    [[nodiscard]] ArenaCore& core() noexcept { return *core_; }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }

    /// Notes that the work to wait for has completed. `whole_device`: that was all work of the device, so it is a
    /// fence.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept {
        row_.waited = waited;
        if (whole_device) core_->frees_.finish_fence(fence_);
    }

protected:
    Step(ArenaCore& core, Turn::Hold turn) : turn_{std::move(turn)}, core_{&core}, fence_{core.frees_.begin_fence()} {
        row_.tag = core.tag_;
        row_.device = core.device();
    }
    Step(Step&&) noexcept = default;
    ~Step() = default;

    void note(const Status& status) noexcept { (void)note_first(failure_, status); }
    void begin_copying(const char* what) { copying_ = Span{core_->options_.events, tag(), core_->device(), what}; }

    friend class Arriving;

    Turn::Hold turn_;
    Borrowed core_;
    std::uint64_t fence_;
    TagReport row_;
    Status failure_;
    Span copying_;
};

/// One pause, in steps. The constructor begins it; then: wait for the device, `idle`, `enqueue`, `wait`, `release`,
/// `commit`. Destroying it before `release` leaves everything unchanged. It takes the active memory away, so while it
/// lives new blocks come from other memory, and blocks deallocated in its own stay as they are.
class ArenaCore::Pause final : public Step {
public:
    /// `once`: the policy for this pause, if not the tag's. Throws OutOfHostMemory, or DriverError if copies of an
    /// earlier, failed operation cannot be waited for; then nothing has changed.
    Pause(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once)
        : Step{core, std::move(turn)}, keeps_{(once ? *once : core.policy_).keeps_bytes()},
          slot_{once ? std::shared_ptr<AnySlot>{once->open(core.driver_)} : core.own_} {
        row_.released_bytes = core.recover();
        // A pause is not complete while pages are held, so it also releases those of earlier calls.
        note(core.retry_leftovers(row_.released_bytes));
        core.drop_dead();
        scratch_before_ = scratch_bytes();
        if (core.physical_bytes_.load() == 0) note(release_scratch(core.own_, row_.released_bytes)); // nothing needs it
        const std::lock_guard lock{core.mutex_};
        released_ = any_in(core.attic_, [](const Leftover& each) { return each.until != nullptr; });
        core.merge_memories();
        std::size_t count = 0;
        for (const auto& memory : core.memories_) count += memory->extents.size();
        extents_.reserve(count);
        taken_.reserve(core.memories_.size());
        for (const auto& memory : core.memories_) {
            if (memory->state != Memory::State::active || memory->extents.empty()) continue;
            taken_.push_back(memory.get());
            for (Extent& extent : memory->extents) extents_.push_back({&extent});
        }
        sort_by(extents_, [](const Leaving& each) { return each.extent->address; }); // the last call that may throw
        for (Memory* const memory : taken_) {
            memory->state = Memory::State::leaving;
            memory->once = once ? slot_ : nullptr;
        }
    }
    ~Pause() {
        if (core_ != nullptr) (void)finish();
    }

    /// Returns whether there is nothing to pause and nothing to report, not even a leftover that was released.
    [[nodiscard]] bool empty() const noexcept { return !takes() && failure_.ok() && row_.released_bytes == 0; }
    /// Returns whether it releases memory, so that work must be waited for first.
    [[nodiscard]] bool takes() const noexcept { return !taken_.empty() || released_; }

    /// Starts saving. Throws what the policy throws.
    void enqueue() {
        if (taken_.empty()) return;
        begin_copying("save");
        if (!keeps_ && slot_ != core_->own_) core_->own_->invalidate(); // what it may have saved becomes stale
        LiveSet live = core_->live_set(taken_, "saving");
        for (const Leaving& each : extents_) {
            if (each.target != nullptr) live.handed_on.push_back(each.extent->range());
        }
        ranges_ = live.extents;
        enqueued_ = true;
        ticket_ = slot_->save(live);
    }
    [[nodiscard]] Ticket& ticket() noexcept { return ticket_; }

    /// Waits until every byte has been saved. Throws if a save failed.
    void wait() {
        core_->check_moved(ticket_.wait(), "save bytes", ticket_.bytes());
        row_.saved_bytes = keeps_ ? ticket_.bytes() : 0; // else the ticket wrote poison
        copying_.end();
    }

    /// Releases the pages, or hands them over. From here on the memory is paused. Failures are recorded and reported by
    /// `commit`.
    void release() noexcept {
        gone_ = true;
        for (const Leaving& each : extents_) {
            Extent& extent = *each.extent;
            const bool handed = each.target != nullptr;
            const std::size_t freed = core_->bytes_freed(extent);
            const Status status = core_->unsettled_.load() ? Status{StatusKind::other, 0, "copies may be in flight"}
                                  : handed                 ? core_->unmap(extent)
                                                           : core_->drop_active(extent);
            note(status);
            if (handed) { // the target has been written to: the old bytes are saved, and lost here
                each.to->take_over(*each.target, *core_, extent);
                row_.handed_bytes += extent.bytes;
            } else if (status.ok()) {
                row_.released_bytes += freed;
            }
        }
    }

    /// Ends the operation and returns its row of the report. `status` receives the first failure, if any.
    TagReport commit(Status& status) {
        note(core_->retry_attic(row_.released_bytes));
        ticket_ = {};
        std::size_t given = 0;
        note(release_scratch(slot_, given));
        if (slot_ != core_->own_) note(release_scratch(core_->own_, given));
        row_.released_bytes += std::min(given, scratch_before_); // the pause itself took the rest
        if (any_in(extents_, [](const Leaving& each) { return each.extent->owns || each.extent->mapped; }))
            core_->tell_kept(failure_, "release pages (the next operation retries)");
        status = failure_;
        return finish();
    }

    // --- for an exchange: exchange.hpp ---

    /// An extent that was taken. `release` transfers its pages to `target`, if set: an extent of the arena `to`, where
    /// they are mapped as well.
    struct Leaving {
        Extent* extent;
        Extent* target = nullptr;
        ArenaCore* to = nullptr;
    };
    /// Returns the extents, sorted by address. Valid until `commit`.
    [[nodiscard]] Vector<Leaving>& extents() noexcept { return extents_; }
    /// Returns the bytes that the device gets back.
    [[nodiscard]] std::size_t bytes_freed() const noexcept {
        std::size_t bytes = scratch_bytes();
        for (const Leaving& each : extents_) bytes += each.target == nullptr ? core_->bytes_freed(*each.extent) : 0;
        return bytes;
    }
    /// After a failure: hands over nothing.
    void hand_over_nothing() noexcept {
        for (Leaving& each : extents_) each.target = nullptr;
    }
    /// Returns whether the policy keeps the bytes. If not, a ticket with bytes writes poison over pages handed over.
    [[nodiscard]] bool keeps_bytes() const noexcept { return keeps_; }
    /// After a failure, when pages may have been overwritten, but all saves were on their streams before: they complete
    /// unless the device is lost. Waits for the device; `release` must follow.
    void saved_anyway() noexcept {
        const Status drained = driver().drain();
        if (!drained.ok()) {
            note(drained);
            if (drained.kind != StatusKind::gone) core_->unsettle();
        }
        slot_->saved_in_part(ranges_);
    }

private:
    /// Returns the scratch memory that `commit` releases in addition to the extents.
    [[nodiscard]] std::size_t scratch_bytes() const noexcept {
        return core_->own_scratch_ ? core_->own_scratch_->held_bytes() : 0;
    }
    TagReport finish() noexcept {
        ArenaCore& core = *core_.release();
        ticket_ = {};
        extents_.clear();
        if (!gone_ && enqueued_) {
            slot_->outdated(); // the memory may change before it is saved again
            core.unsettle();
        }
        {
            const std::lock_guard lock{core.mutex_};
            for (Memory* const memory : taken_) {
                memory->state = gone_ ? Memory::State::paused : Memory::State::active;
                if (!gone_) memory->once.reset();
            }
            if (gone_) core.free_paused();
            core.merge_memories();
            if (gone_ && !taken_.empty()) {
                ++core.pauses_;
                if (!keeps_) core.note_loss();
            }
            row_.held_bytes = core.held().bytes;
        }
        if (!gone_ || taken_.empty()) core.retire_slot(std::move(slot_));
        return std::move(row_);
    }

    bool keeps_; // the policy keeps the bytes
    bool enqueued_ = false;
    bool gone_ = false;     // `release` was called: the memory is paused
    bool released_ = false; // released elastic memory waits for work
    std::shared_ptr<AnySlot> slot_;
    Vector<Memory*> taken_;          // leaving
    Vector<Leaving> extents_;        // of all of it, sorted
    std::vector<Range> ranges_;      // of these, once the saves have begun
    std::size_t scratch_before_ = 0; // scratch bytes at the beginning
    Ticket ticket_;
};

/// One resume, in steps. The constructor begins it; then: `create`, `map`, `enqueue`, `wait`, `commit`. Destroying it
/// before `commit` leaves the memory paused as before and its backup complete. Paused memory in which no block lives is
/// not resumed, and adjacent ranges come back as one handle. Pages that could not be released are taken back as they
/// are. Move-only.
class ArenaCore::Resume final : public Step {
public:
    /// `once`: a policy that replaces the saved bytes for this resume. Throws OutOfHostMemory, or DriverError if copies
    /// of an earlier, failed operation cannot be waited for; then nothing has changed.
    Resume(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once = {})
        : Step{core, std::move(turn)}, once_{once ? once->open(core.driver_) : nullptr} {
        row_.released_bytes = core.recover();
        bool sealed = false; // if published pages could not be released, bytes would come back into what others read
        for (std::size_t i = 0; const Memory* const each = core.memory(i); ++i)
            sealed |= any_in(each->extents, [](const Extent& extent) { return extent.sealed; });
        if (sealed) {
            core.check_of_tag(core.retry_leftovers(row_.released_bytes), "release published pages");
        } else {
            (void)core.retry_attic(row_.released_bytes); // or later
        }
        core.drop_dead();
        begin();
        try { // pages that were handed over, and could not be unmapped then
            unmap_handed();
        } catch (...) {
            undo();
            throw;
        }
    }
    Resume(Resume&&) noexcept = default;
    ~Resume() {
        if (core_ != nullptr) undo();
    }
    /// Ends the operation: the memory is paused as before. Returns the bytes released.
    std::size_t undo() noexcept {
        tickets_.clear();
        ArenaCore& core = *core_.release();
        const Status drained = enqueued_ ? core.driver_.drain() : Status{};
        if (!drained.ok() && drained.kind != StatusKind::gone) core.unsettle();
        std::size_t released = 0;
        for (Memory* const memory : coming_) {
            for (Extent& extent : memory->extents) {
                const std::size_t freed = core.bytes_freed(extent);
                const Status status = drained.ok() ? core.drop(extent) : drained;
                core.tell_kept(status, "release pages (the next operation retries)");
                released += status.ok() ? freed : 0;
            }
        }
        core.each_scratch(coming_, [](DeviceScratch& scratch) { (void)scratch.give(); }); // a failure stays counted
        {
            const std::lock_guard lock{core.mutex_};
            for (Memory* const memory : coming_) memory->state = Memory::State::paused;
            core.free_paused();
        }
        if (resident_) core.losses_.store(losses_before_); // the saved bytes come back after all
        if (once_) core.retire_slot(std::move(once_));
        return released;
    }

    /// Returns whether there is nothing to resume and nothing to report, not even a leftover that was released.
    [[nodiscard]] bool empty() const noexcept { return coming_.empty() && row_.released_bytes == 0; }
    /// Why `create` was refused.
    std::optional<OutOfMemory> refused;
    /// Returns whether any memory comes back.
    [[nodiscard]] bool brings() const noexcept { return !coming_.empty(); }
    /// Returns the physical bytes that are still to be created.
    [[nodiscard]] std::size_t needed_bytes() const noexcept {
        std::size_t bytes = wanted_scratch();
        for (const Memory* const memory : coming_) bytes += bytes_lacking(memory->extents);
        return bytes;
    }
    /// Returns whether the bytes are restored from a backup.
    [[nodiscard]] bool brings_bytes() const noexcept { return !once_ && core_->policy_.keeps_bytes(); }

    /// Creates all physical memory that the resume needs, or none: then throws OutOfMemory, and may be called again.
    void create() {
        const std::size_t scratch_bytes = wanted_scratch();
        row_.mapped_bytes = scratch_bytes;
        for (const Memory* const memory : coming_) {
            for (const Extent& extent : memory->extents) row_.mapped_bytes += extent.owns ? 0 : extent.bytes;
        }
        std::size_t beside = needed_bytes(); // of all memories, and scratch
        Status status;
        for (Memory* const memory : coming_) {
            beside -= bytes_lacking(memory->extents);
            if (status.ok()) status = core_->create_all(memory->extents, beside);
        }
        if (status.ok() && scratch_bytes != 0) {
            core_->each_scratch(coming_, [&](DeviceScratch& scratch) {
                if (status.ok()) status = scratch.take();
            });
        }
        if (status.ok()) return;
        uncreate();
        core_->raise_no_room(status, "allocate memory for a resume", needed_bytes());
    }
    /// Releases what `create` created, and pages that could not be released before.
    void uncreate() noexcept {
        for (Memory* const memory : coming_) {
            for (Extent& extent : memory->extents) {
                if (!extent.mapped) (void)core_->release(extent); // a failure keeps them for the next try
            }
        }
        core_->each_scratch(coming_, [](DeviceScratch& scratch) { (void)scratch.give(); });
    }
    /// Maps the created pages. Throws the error of a failing driver call.
    void map() {
        for (Memory* const memory : coming_) {
            for (Extent& extent : memory->extents) {
                if (!extent.owns) continue; // another arena's pages
                check(core_->map(extent, extent.pages), "map pages", extent.bytes, extent.address);
            }
        }
    }

    /// Sets the ranges to restore first: see LiveSet. Must precede `enqueue`.
    void bring_first(std::vector<Range> ranges) noexcept { first_ = std::move(ranges); }
    /// Makes the arena's gates wait for what `enqueue` has begun. Waits for bytes that have gates until their copies
    /// are on their streams. Throws the error of a failing call.
    void record_gates() {
        ArenaCore& core = *core_;
        for (const auto& gate : core.gates_.in_order(first_)) {
            if (!lives(*gate)) continue;
            bool any = false;
            for (std::size_t i = 0; i < tickets_.size(); ++i) {
                const auto gated = [&](const Extent& extent) { return overlap(extent.range(), gate->range); };
                if (!any_in(coming_[i]->extents, gated)) continue;
                any = true;
                const Status status = tickets_[i].follow(core.gates_.relay(), gate->range);
                if (status.ok()) continue;
                core.check_moved(tickets_[i].wait(), "restore bytes",
                                 tickets_[i].bytes()); // the ticket reports the cause
                core.check_moved(status, "make a gate wait for arriving bytes", tickets_[i].bytes());
            }
            if (any) check(core.driver_.record(gate->event.get(), core.gates_.relay()), "record the event of a gate");
        }
    }

    /// Starts restoring the bytes. Throws what a policy throws. `before_write`: see LiveSet.
    void enqueue(const std::function<Status(Range)>& before_write = {}) {
        if (coming_.empty()) return;
        begin_copying("restore");
        tickets_.reserve(coming_.size());
        for (Memory* const memory : coming_) {
            AnySlot& slot = once_ ? *once_ : *core_->slot_of(*memory);
            LiveSet live = core_->live_set({memory}, "restoring");
            if (before_write && !slot.asks_before_write()) {
                for (const Range& range : live.extents)
                    core_->check_of_tag(before_write(range), "wait for the save of the previous bytes");
            }
            live.before_write = before_write;
            live.first = first_;
            enqueued_ = true;
            tickets_.push_back(slot.restore(live));
        }
    }
    [[nodiscard]] Vector<Ticket>& tickets() noexcept { return tickets_; }

    /// Waits until every byte has been restored. Throws if a restore failed.
    void wait() {
        row_.restored_bytes = core_->wait_for(tickets_, "restore bytes");
        copying_.end();
    }

    /// Ends the operation: the memory becomes active.
    TagReport commit() noexcept {
        becomes_resident();
        ArenaCore& core = *core_.release();
        tickets_.clear();
        bool own = false;
        for (std::size_t i = 0; i < coming_.size(); ++i) {
            std::shared_ptr<AnySlot> once;
            {
                const std::lock_guard lock{core.mutex_};
                once = std::exchange(coming_[i]->once, nullptr);
                coming_[i]->state = Memory::State::active;
                coming_[i]->sealed = false;
            }
            own = own || once == nullptr;
            bool last = true;
            for (std::size_t later = i + 1; later < coming_.size(); ++later) last &= coming_[later]->once != once;
            if (once && last) core.slot_resumed(once); // without a lock, because it may take long
        }
        if (once_) {
            core.own_->invalidate();
            core.retire_slot(std::move(once_));
        }
        if (own) core.slot_resumed(core.own_);
        {
            const std::lock_guard lock{core.mutex_};
            core.merge_memories();
            row_.held_bytes = core.held().bytes;
        }
        return std::move(row_);
    }

    // --- for an exchange: exchange.hpp ---

    /// Returns the memories that come back. Their extents may be replanned before `create`.
    [[nodiscard]] const Vector<Memory*>& memories() const noexcept { return coming_; }
    /// Replaces the extents of one of them, which have no pages, by others over the same ranges. Throws std::bad_alloc;
    /// then nothing has changed.
    void plan(Memory& memory, Vector<Extent> extents) {
        const std::lock_guard lock{core_->mutex_};
        core_->reserve_attic(extents.size());
        core_->extents_ += extents.size();
        core_->extents_ -= memory.extents.size();
        memory.extents = std::move(extents);
    }
    /// Maps pages that another arena owns and will hand over. Throws the error of a failing driver call.
    void map_of(Extent& extent, PageHandle pages) {
        check(core_->map(extent, pages), "map handed-over pages", extent.bytes, extent.address);
    }
    /// Unmaps pages that another arena owns and will not hand over after all. Throws the error of a failing driver
    /// call.
    void unmap_handed() {
        for (Memory* const memory : coming_) {
            for (Extent& extent : memory->extents) {
                if (!extent.mapped || extent.owns) continue;
                core_->check_of_tag(core_->unmap(extent), "unmap pages of another tag");
            }
        }
    }
    /// The memory can be found resident from here on. Counts a loss, once, if the saved bytes are not restored.
    void becomes_resident() noexcept {
        if (std::exchange(resident_, true)) return;
        losses_before_ = core_->losses();
        if (once_ && brings()) core_->note_loss();
    }

private:
    /// Returns whether a gate's block does, also one that a graph keeps: its replays wait there.
    [[nodiscard]] bool lives(const GateMark& gate) const noexcept {
        const std::lock_guard lock{core_->mutex_};
        const Memory* const memory = core_->memory_with_block(gate.block);
        const Block* const block = memory != nullptr ? memory->blocks.find(gate.block) : nullptr;
        return block != nullptr && block->serial == gate.serial && block->state != Block::State::freed;
    }
    /// Returns the bytes of scratch memory that restoring needs and that is still to be allocated.
    [[nodiscard]] std::size_t wanted_scratch() const noexcept {
        std::size_t bytes = 0;
        if (!once_ && !coming_.empty())
            core_->each_scratch(coming_, [&](DeviceScratch& scratch) { bytes += scratch.wanted_bytes(); });
        return bytes;
    }
    void begin() {
        ArenaCore& core = *core_;
        const std::lock_guard lock{core.mutex_};
        core.merge_memories();
        coming_.reserve(core.memories_.size());
        for (const auto& memory : core.memories_) {
            if (memory->state != Memory::State::paused) continue;
            Vector<Extent> plan; // adjacent ranges come back as one handle
            plan.reserve(memory->extents.size());
            for_each_run(
                memory->extents, [&](Range run) { split_into_extents(run, core.granularity_, false, plan); },
                [&](const Extent& extent) { plan.push_back(extent); });
            core.reserve_attic(plan.size()); // the last call that may throw
            core.extents_ += plan.size();
            core.extents_ -= memory->extents.size();
            memory->extents.swap(plan);
            coming_.push_back(memory.get());
        }
        for (Memory* const memory : coming_) memory->state = Memory::State::arriving;
    }

    std::shared_ptr<AnySlot> once_;
    Vector<Memory*> coming_; // arriving
    bool enqueued_ = false;  // copies may be in flight, also those of a `restore` that threw
    bool resident_ = false;  // see `becomes_resident`
    std::uint64_t losses_before_ = 0;
    std::vector<Range> first_; // ranges to restore first
    Vector<Ticket> tickets_;   // one for each memory
};

/// One trim, in steps. The constructor begins it; then: wait for the device, `idle`, `release`, `commit`.
class ArenaCore::Trim final : public Step {
public:
    Trim(ArenaCore& core, Turn::Hold turn) : Step{core, std::move(turn)} {}

    [[nodiscard]] static constexpr bool empty() noexcept { return false; }
    [[nodiscard]] static constexpr bool takes() noexcept { return true; } // freed blocks may be waiting for the device

    /// Releases extents that are entirely free. Failures are recorded and reported by `commit`.
    void release() noexcept {
        try {
            if (const Status status = core_->settle(); !status.ok()) return note(status);
            note(core_->retry_leftovers(row_.released_bytes));
            core_->drop_dead();
            Vector<Extent> unused = take_unused();
            for (Extent& extent : unused) {
                const std::size_t freed = core_->bytes_freed(extent);
                const Status status = core_->drop(extent);
                note(status);
                if (status.ok()) row_.released_bytes += freed;
                core_->leave(extent, true, status);
            }
            note(release_scratch(core_->own_, row_.released_bytes));
        } catch (const std::bad_alloc&) { // thrown before anything was taken out
            note({StatusKind::out_of_host_memory, 0, "no host memory for the records of a trim"});
        }
    }

    /// Ends the operation and returns its row of the report. `status` receives the first failure, if any.
    TagReport commit(Status& status) noexcept {
        status = failure_;
        const std::lock_guard lock{core_->mutex_};
        row_.held_bytes = core_->held().bytes;
        return std::move(row_);
    }

private:
    Vector<Extent> take_unused() {
        ArenaCore& core = *core_;
        Frees::Lock lock{core.mutex_};
        (void)core.collect(lock);
        Vector<Extent> unused;
        std::vector<Range> free;
        std::size_t count = 0;
        for (const auto& memory : core.memories_) {
            if (memory->state != Memory::State::active) continue;
            count += memory->extents.size();
            memory->blocks.for_each_free(core.granularity_, [&](Range range) { free.push_back(range); });
        }
        unused.reserve(count); // the last call that may throw
        sort_by_address(free);
        for (const auto& memory : core.memories_) {
            if (memory->state != Memory::State::active) continue;
            erase_in(memory->extents, [&](const Extent& extent) {
                if (!covers(free, extent.range())) return false;
                try {
                    memory->blocks.remove(extent.range());
                } catch (const std::bad_alloc&) {
                    return false; // it stays, which is not a failure of the trim
                }
                unused.push_back(extent);
                return true;
            });
        }
        erase_in(core.memories_,
                 [](const auto& memory) { return memory->state == Memory::State::active && memory->extents.empty(); });
        return unused;
    }
};

using PauseStep = ArenaCore::Pause;
using ResumeStep = ArenaCore::Resume;
using TrimStep = ArenaCore::Trim;

inline std::size_t ArenaCore::release_unused(bool wait) noexcept {
    try {
        if (idle_for_pause()) return 0;
        auto turn = try_turn();
        if (!turn || (unsettled_.load() && !wait)) return 0;
        now(Turn::Stage::moves); // a trim waits for nobody
        Trim step{*this, std::move(turn)};
        step.release();
        Status ignored;
        return step.commit(ignored).released_bytes;
    } catch (...) {
        return 0; // what could not be released stays; the arena's own operations report why
    }
}

} // namespace memsaver::inline v0_3::detail
