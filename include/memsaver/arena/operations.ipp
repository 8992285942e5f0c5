// Definitions of operations.hpp.
#pragma once

#include "memsaver/arena/operations.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

// --- pause ---

MEMSAVER_INLINE ArenaCore::Pause::Pause(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once)
    : Step{core, std::move(turn)}, keeps_{(once ? *once : core.policy_).keeps_bytes()},
      slot_{once ? std::shared_ptr<AnySlot>{once->open(core.driver_)} : core.own_} {
    core.recover();
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
        for (Extent& extent : memory->extents) extents_.push_back(&extent);
    }
    sort_by(extents_, [](const Extent* extent) { return extent->address; }); // the last call that may throw
    for (Memory* const memory : taken_) {
        memory->state = Memory::State::leaving;
        memory->once = once ? slot_ : nullptr;
    }
}

MEMSAVER_INLINE ArenaCore::Pause::~Pause() {
    if (core_ != nullptr) (void)finish();
}

MEMSAVER_INLINE void ArenaCore::Pause::enqueue() {
    if (taken_.empty()) return;
    saving_ = Span{core_->options_.events, core_->tag_, core_->device(), "save"};
    if (slot_ != core_->own_) core_->own_->invalidate(); // what it may have saved of these bytes becomes stale
    LiveSet live = core_->live_set(taken_, "saving");
    for (std::size_t i = 0; i < targets_.size(); ++i) {
        if (targets_[i].extent != nullptr) live.handed_on.push_back(extents_[i]->range());
    }
    ranges_ = live.extents;
    enqueued_ = true;
    ticket_ = slot_->save(live);
}

MEMSAVER_INLINE void ArenaCore::Pause::wait() {
    core_->check_moved(ticket_.wait(), "save bytes", ticket_.bytes());
    row_.saved_bytes = keeps_ ? ticket_.bytes() : 0; // else the ticket wrote poison
    saving_.end();
}

MEMSAVER_INLINE void ArenaCore::Pause::saved_anyway() noexcept {
    const Status drained = driver().drain();
    if (!drained.ok()) {
        note(drained);
        if (drained.kind != StatusKind::gone) core_->unsettle();
    }
    slot_->saved_in_part(ranges_);
}

MEMSAVER_INLINE void ArenaCore::Pause::release() noexcept {
    gone_ = true;
    for (std::size_t i = 0; i < extents_.size(); ++i) {
        Extent& extent = *extents_[i];
        const Target target = targets_.empty() ? Target{} : targets_[i];
        const Status unmapped =
            core_->unsettled_.load() ? Status{StatusKind::other, 0, "copies may be in flight"} : core_->unmap(extent);
        note(unmapped);
        if (target.extent != nullptr) { // the target has been written to: the old bytes are saved, and lost here
            target.core->take_over(*target.extent, *core_, extent);
            row_.handed_bytes += extent.bytes;
        } else if (unmapped.ok()) {
            const Status status = core_->release(extent);
            note(status);
            if (status.ok()) row_.released_bytes += extent.bytes;
        }
    }
}

MEMSAVER_INLINE TagReport ArenaCore::Pause::commit(Status& status) {
    note(core_->retry_attic(row_.released_bytes));
    ticket_ = {};
    std::size_t given = 0;
    note(release_scratch(slot_, given));
    if (slot_ != core_->own_) note(release_scratch(core_->own_, given));
    row_.released_bytes += std::min(given, scratch_before_); // the pause itself took the rest
    if (any_in(extents_, [](const Extent* extent) { return extent->owns || extent->mapped; }))
        core_->tell_kept(failure_, "release pages (the next operation retries)");
    status = failure_;
    return finish();
}

MEMSAVER_INLINE TagReport ArenaCore::Pause::finish() noexcept {
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
            if (!keeps_) ++core.losses_;
        }
        row_.held_bytes = core.held().bytes;
    }
    if (!gone_ || taken_.empty()) core.retire_slot(std::move(slot_));
    return std::move(row_);
}

// --- resume ---

MEMSAVER_INLINE ArenaCore::Resume::Resume(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once)
    : Step{core, std::move(turn)}, once_{once ? once->open(core.driver_) : nullptr} {
    core.recover();
    bool sealed = false; // if published pages could not be released, bytes would come back into what others read
    for (std::size_t i = 0; const Memory* const each = core.memory(i); ++i) sealed |= each->sealed;
    (void)(sealed ? core.retry_leftovers(row_.released_bytes) : core.retry_attic(row_.released_bytes)); // or later
    core.drop_dead();
    begin();
    try { // pages that were handed over, and could not be unmapped then
        unmap_handed();
    } catch (...) {
        back_to_paused();
        throw;
    }
}

MEMSAVER_INLINE void ArenaCore::Resume::begin() {
    ArenaCore& core = *core_;
    const std::lock_guard lock{core.mutex_};
    core.merge_memories();
    coming_.reserve(core.memories_.size());
    for (const auto& memory : core.memories_) {
        if (memory->state != Memory::State::paused) continue;
        std::vector<Extent> plan; // adjacent ranges come back as one handle
        plan.reserve(memory->extents.size());
        for_each_run(
            memory->extents, [&](Range run) { split_into_extents(run, core.granularity_, false, plan); },
            [&](const Extent& extent) { plan.push_back(extent); });
        core.reserve_attic(plan.size()); // the last call that may throw
        core.extents_ += plan.size();
        core.extents_ -= memory->extents.size();
        memory->extents.swap(plan);
    }
    for (const auto& memory : core.memories_) {
        if (memory->state != Memory::State::paused) continue;
        memory->state = Memory::State::arriving;
        coming_.push_back(memory.get());
        for (Extent& extent : memory->extents) {
            extent.kept = extent.owns;
            row_.mapped_bytes += extent.owns ? 0 : extent.bytes;
        }
    }
}

MEMSAVER_INLINE void ArenaCore::Resume::unmap_handed() {
    for (Memory* const memory : coming_) {
        for (Extent& extent : memory->extents) {
            if (!extent.mapped || extent.owns) continue;
            core_->check_of_tag(core_->unmap(extent), "unmap pages of another tag");
        }
    }
}

MEMSAVER_INLINE ArenaCore::Resume::~Resume() {
    if (core_ == nullptr) return;
    tickets_.clear();
    back_to_paused();
}

MEMSAVER_INLINE void ArenaCore::Resume::back_to_paused() noexcept {
    ArenaCore& core = *core_;
    const Status drained = enqueued_ ? core.driver_.drain() : Status{};
    if (!drained.ok() && drained.kind != StatusKind::gone) core.unsettle();
    for (Memory* const memory : coming_) {
        for (Extent& extent : memory->extents) {
            core.tell_kept(drained.ok() ? core.drop(extent) : drained, "release pages (the next operation retries)");
        }
    }
    core.each_scratch(coming_, [](DeviceScratch& scratch) { (void)scratch.give(); }); // a failure stays counted
    {
        const std::lock_guard lock{core.mutex_};
        for (Memory* const memory : coming_) memory->state = Memory::State::paused;
        core.free_paused();
    }
    if (once_) core.retire_slot(std::move(once_));
}

MEMSAVER_INLINE std::size_t ArenaCore::Resume::needed_bytes() const noexcept {
    std::size_t bytes = 0;
    for (const Memory* const memory : coming_) {
        for (const Extent& extent : memory->extents) bytes += extent.owns || extent.mapped ? 0 : extent.bytes;
    }
    if (!once_ && !coming_.empty())
        core_->each_scratch(coming_, [&](DeviceScratch& scratch) { bytes += scratch.wanted_bytes(); });
    return bytes;
}

MEMSAVER_INLINE void ArenaCore::Resume::plan(Memory& memory, std::vector<Extent> extents) {
    const std::lock_guard lock{core_->mutex_};
    core_->reserve_attic(extents.size());
    core_->extents_ += extents.size();
    core_->extents_ -= memory.extents.size();
    memory.extents = std::move(extents);
}

MEMSAVER_INLINE void ArenaCore::Resume::map_of(Extent& extent, PageHandle pages) {
    check(core_->map(extent, pages), "map handed-over pages", extent.bytes, extent.address);
}

MEMSAVER_INLINE void ArenaCore::Resume::create() {
    std::size_t scratch_bytes = 0;
    if (!once_ && !coming_.empty())
        core_->each_scratch(coming_, [&](DeviceScratch& scratch) { scratch_bytes += scratch.wanted_bytes(); });
    std::size_t beside = needed_bytes(); // of all memories, and scratch
    Status status;
    for (Memory* const memory : coming_) {
        std::size_t own = 0;
        for (const Extent& extent : memory->extents) own += extent.owns || extent.mapped ? 0 : extent.bytes;
        beside -= own;
        if (status.ok()) status = core_->create_all(memory->extents, beside);
    }
    if (status.ok() && scratch_bytes != 0) {
        core_->each_scratch(coming_, [&](DeviceScratch& scratch) {
            if (status.ok()) status = scratch.take();
        });
        scratch_bytes_ += scratch_bytes;
    }
    if (status.ok()) return;
    uncreate();
    core_->raise_no_room(status, "allocate memory for a resume", needed_bytes());
}

MEMSAVER_INLINE void ArenaCore::Resume::uncreate() noexcept {
    for (Memory* const memory : coming_) {
        for (Extent& extent : memory->extents) {
            if (!extent.mapped && !extent.kept) (void)core_->release(extent); // a failure keeps them for the next try
        }
    }
    core_->each_scratch(coming_, [](DeviceScratch& scratch) { (void)scratch.give(); });
    scratch_bytes_ = 0;
}

MEMSAVER_INLINE void ArenaCore::Resume::map() {
    for (Memory* const memory : coming_) {
        for (Extent& extent : memory->extents) {
            if (!extent.owns) continue; // another arena's pages
            check(core_->map(extent, extent.pages), "map pages", extent.bytes, extent.address);
        }
    }
}

MEMSAVER_INLINE void ArenaCore::Resume::enqueue(const std::function<Status(Range)>& before_write) {
    if (coming_.empty()) return;
    restoring_ = Span{core_->options_.events, core_->tag_, core_->device(), "restore"};
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

MEMSAVER_INLINE void ArenaCore::Resume::record_gates() {
    std::vector<Bringing> coming;
    for (std::size_t i = 0; i < tickets_.size(); ++i) coming.push_back({&tickets_[i], coming_[i]->ranges()});
    core_->gates_.record(
        coming, first_,
        [&](const GateMark& gate) { // also in a block that a graph keeps: its replays wait there
            const std::lock_guard lock{core_->mutex_};
            const Memory* const memory = core_->memory_with_block(gate.block);
            const Block* const block = memory != nullptr ? memory->blocks.find(gate.block) : nullptr;
            return block != nullptr && block->serial == gate.serial && block->state != Block::State::freed;
        },
        [&](const Status& status, Ticket& ticket) {
            core_->check_moved(ticket.wait(), "restore bytes", ticket.bytes()); // the ticket reports the cause
            core_->check_moved(status, "make a gate wait for arriving bytes", ticket.bytes());
        });
}

MEMSAVER_INLINE void ArenaCore::Resume::becomes_resident() noexcept {
    if (!std::exchange(resident_, true) && once_ && brings()) ++core_->losses_;
}

MEMSAVER_INLINE void ArenaCore::Resume::go_on_alone() noexcept {
    becomes_resident(); // a use need not await the bytes
    const Turn::Hold given_up{std::move(turn_)};
}

MEMSAVER_INLINE void ArenaCore::Resume::wait() {
    for (; waited_ < tickets_.size(); ++waited_) {
        Ticket& ticket = tickets_[waited_];
        core_->check_moved(ticket.wait(), "restore bytes", ticket.bytes());
        row_.restored_bytes += ticket.bytes();
    }
    restoring_.end();
}

MEMSAVER_INLINE TagReport ArenaCore::Resume::commit() noexcept {
    becomes_resident();
    ArenaCore& core = *core_.release();
    tickets_.clear();
    row_.mapped_bytes += scratch_bytes_;
    bool own = false;
    for (std::size_t i = 0; i < coming_.size(); ++i) {
        std::shared_ptr<AnySlot> once;
        {
            const std::lock_guard lock{core.mutex_};
            once = std::exchange(coming_[i]->once, nullptr);
            coming_[i]->state = Memory::State::active;
            coming_[i]->sealed = false;
            for (const Extent& extent : coming_[i]->extents) coming_[i]->sealed |= extent.sealed; // kept
        }
        own = own || once == nullptr;
        const bool last = std::none_of(coming_.begin() + static_cast<std::ptrdiff_t>(i), coming_.end(),
                                       [&](const Memory* memory) { return memory->once == once; });
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

// --- trim ---

MEMSAVER_INLINE void ArenaCore::Trim::release() noexcept {
    try {
        if (const Status status = core_->settle(); !status.ok()) return note(status);
        note(core_->retry_leftovers(row_.released_bytes));
        core_->drop_dead();
        std::vector<Extent> unused = take_unused();
        for (Extent& extent : unused) {
            const Status status = core_->drop(extent);
            note(status);
            if (status.ok()) row_.released_bytes += extent.bytes;
            core_->leave(extent, true, status);
        }
        note(release_scratch(core_->own_, row_.released_bytes));
    } catch (const std::bad_alloc&) { // thrown before anything was taken out
        note({StatusKind::out_of_host_memory, 0, "no host memory for the records of a trim"});
    }
}

MEMSAVER_INLINE TagReport ArenaCore::Trim::commit(Status& status) noexcept {
    status = failure_;
    const std::lock_guard lock{core_->mutex_};
    row_.held_bytes = core_->held().bytes;
    return std::move(row_);
}

MEMSAVER_INLINE std::vector<Extent> ArenaCore::Trim::take_unused() {
    ArenaCore& core = *core_;
    Frees::Lock lock{core.mutex_};
    (void)core.collect(lock);
    std::vector<Extent> unused;
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
    erase_in(core.memories_, [](const auto& memory) {
        return memory->state == Memory::State::active && memory->extents.empty() && memory->blocks.empty();
    });
    return unused;
}

MEMSAVER_INLINE std::size_t ArenaCore::release_unused(bool wait) noexcept {
    try {
        if (idle_for_pause()) return 0;
        auto turn = try_turn();
        if (!turn) return 0;
        now(Turn::Stage::moves); // a trim waits for nobody
        Trim step{*this, std::move(*turn)};
        if (wait && anything_waits() && driver_.drain().ok()) step.idle({}, true);
        step.release();
        Status ignored;
        return step.commit(ignored).released_bytes;
    } catch (const std::exception&) {
        return 0; // what could not be released stays; the arena's own operations report why
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
