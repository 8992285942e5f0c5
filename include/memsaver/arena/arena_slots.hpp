// The slots of one arena: its tag's own, and those of pauses with another policy. Knows what they are shown, and sees
// to it that what they hold is given back.
#pragma once

#include "memsaver/arena/arena_memory.hpp"
#include "memsaver/backup/backup.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Used by an ArenaCore and its steps, with the turn held. No slot dies or gives anything back under a lock that those
/// who allocate or deallocate may want.
template <Driver D>
class ArenaSlots {
public:
    ArenaSlots(ArenaMemory<D>& memory, const AnyBackup<D>& policy)
        : own{policy.open(memory.pages.driver())}, memory_{memory} {}

    /// What a slot is shown of these ranges. The arena outlives it.
    [[nodiscard]] LiveSet live_set(std::vector<Range> ranges, const char* what) {
        LiveSet live;
        live.extents = ranges;
        live.blocks = [this, ranges] { return memory_.heaps.live_blocks(ranges); };
        live.host_budget = memory_.pages.options().host_budget;
        live.tag = memory_.pages.tag();
        if (!memory_.pages.options().events) return live;
        live.progress = [this, what](std::size_t done, std::size_t total) {
            tell(memory_.pages.options().events, [&] { return event(EventKind::progress, what, done, total); });
        };
        live.tell = [this](const std::string& text) {
            tell(memory_.pages.options().events, [&] { return event(EventKind::fell_back, text); });
        };
        return live;
    }

    /// Throws what the end of a transfer stands for, with the tag in the text.
    void check_moved(const Status& status, const Attempt& attempt, std::size_t bytes) const {
        if (!status.ok()) raise(status, attempt, "tag \"" + memory_.pages.tag() + "\", " + format_bytes(bytes), bytes);
    }

    /// A part of a live block's kept bytes. Throws Misuse that says why there are none.
    [[nodiscard]] BackupView view(const LiveBlock& block, std::size_t offset, std::size_t bytes) {
        std::shared_ptr<AnySlot> slot = own;
        for (const auto& batch : memory_.pages.paused) { // under the turn, nobody else touches it
            const bool here = std::any_of(batch.ranges.begin(), batch.ranges.end(), [&](const Range& range) {
                return range.address <= block.address && block.address < range.end();
            });
            if (here) slot = batch.slot;
        }
        return slot->view(block.serial, offset, bytes);
    }

    /// The bytes that a slot brought back are the program's again.
    void resumed(const std::shared_ptr<AnySlot>& slot) noexcept {
        const Status status = slot->resumed();
        if (slot == own) return tell_kept(status);
        retire(slot);
    }
    /// A slot that is not the tag's own is needed no more.
    void retire(std::shared_ptr<AnySlot> slot) noexcept {
        if (slot && slot != own) tell_kept(spent_.add(std::move(slot)));
    }
    /// See ArenaMemory::forget_paused.
    void forget_paused(const std::vector<Range>& dead) {
        std::vector<std::shared_ptr<AnySlot>> slots;
        for (const auto& batch : memory_.pages.paused) {
            if (std::find(slots.begin(), slots.end(), batch.slot) == slots.end()) slots.push_back(batch.slot);
        }
        memory_.forget_paused(dead);
        for (const std::shared_ptr<AnySlot>& slot : slots) {
            const bool away = std::any_of(memory_.pages.paused.begin(), memory_.pages.paused.end(),
                                          [&](const auto& batch) { return batch.slot == slot; });
            if (!away) resumed(slot); // nothing is left of what it kept
        }
    }

    /// The same of all that is paused, so that its addresses serve again; not where pages still are that could not be
    /// unmapped. May throw bad_alloc.
    void forget_dead() {
        if (memory_.pages.paused.empty()) return;
        const std::vector<Range> dead =
            without(memory_.dead_ranges(memory_.pages.paused_ranges()), memory_.pages.mapped_and_held());
        std::vector<Range> rest;
        const Status uncovered = memory_.quarantined.uncover(dead, rest);
        memory_.quarantined.reserve(rest.size());
        memory_.cover(rest);
        if (uncovered.ok()) forget_paused(dead);
    }

    /// Tries again what could not be given back so far.
    void retry() noexcept { (void)spent_.retry(); }

    /// Gives up all of them. Answers the first failure; what is left is tried again by the next call. A lost device is
    /// none.
    Status close() noexcept {
        std::vector<typename ArenaPages<D>::Batch> paused;
        std::shared_ptr<AnySlot> last;
        {
            const std::lock_guard lock{memory_.pages.mutex};
            paused.swap(memory_.pages.paused);
            memory_.heaps.close([&] { last.swap(own); });
        }
        Status first;
        const auto note = [&](const Status& status) {
            if (first.ok() && status.kind != StatusKind::gone) first = status;
        };
        note(spent_.retry());
        for (auto& batch : paused) {
            if (batch.slot != last) note(spent_.add(std::move(batch.slot)));
        }
        if (last) note(spent_.add(std::move(last)));
        return first;
    }

    std::shared_ptr<AnySlot> own; // changed under the heaps' locks only, and at the end

private:
    void tell_kept(const Status& status) const noexcept {
        if (status.ok() || status.kind == StatusKind::gone) return;
        tell(memory_.pages.options().events, [&] {
            return event(EventKind::ignored,
                         failure_text(status, "give back what a backup held; it will be tried again"));
        });
    }
    [[nodiscard]] Event event(EventKind kind, std::string text, std::size_t done = 0, std::size_t total = 0) const {
        return {kind, memory_.pages.tag(), memory_.pages.driver().device(), std::move(text), done, total};
    }

    ArenaMemory<D>& memory_;
    SpentSlots spent_;
};

} // namespace memsaver::inline v0_1
