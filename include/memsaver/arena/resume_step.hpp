// A resume of one arena, in the steps that let several arenas resume together.
#pragma once

#include "memsaver/arena/arena_core.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Begun by construction, then: `create`, `map`, `enqueue`, `wait`, `commit`. What is dropped before `commit` has
/// changed nothing: the memory is as paused as before, and its backup whole. Paused memory in which no block lives is
/// not brought back, and neighbours come back behind one handle. Move-only.
template <Driver D>
class ResumeStep {
public:
    /// Throws OutOfHostMemory, or DriverError if pages that could not be given back earlier are in the way; then
    /// nothing changed.
    ResumeStep(ArenaCore<D>& core, Turn::Hold turn) : turn_{std::move(turn)}, core_{&core} {
        row_.tag = core.tag();
        row_.device = core.device();
        if (const Status status = core.memory_.retry_held(row_.released_bytes); !status.ok() && in_the_way()) {
            core.memory_.check_of_tag(status, "give back what is still held, before a resume");
        }
        core.memory_.heaps.begin_operation(false);
        try {
            core.memory_.check_of_tag(core.memory_.quarantined.uncover(), "end the quarantine of paused memory");
            begin();
        } catch (...) {
            core.memory_.pages.abandon(extents_, false);
            core.memory_.end_operation(true);
            throw;
        }
    }
    ResumeStep(ResumeStep&& other) noexcept
        : turn_{std::move(other.turn_)}, core_{std::exchange(other.core_, nullptr)}, kept_{std::move(other.kept_)},
          extents_{std::move(other.extents_)}, tickets_{std::move(other.tickets_)},
          restoring_{std::move(other.restoring_)}, row_{std::move(other.row_)} {}
    ResumeStep& operator=(ResumeStep&&) = delete;
    ~ResumeStep() {
        if (core_ == nullptr) return;
        const bool in_use = !tickets_.empty();
        tickets_.clear();
        core_->memory_.pages.abandon(extents_, false, in_use);
        cover_again();
        core_->memory_.end_operation(true);
    }

    [[nodiscard]] const D& driver() const noexcept { return core_->driver(); }
    /// Nothing to bring back, and nothing to tell: it has not even given back what an earlier call had to hold.
    [[nodiscard]] bool empty() const noexcept { return kept_.empty() && row_.released_bytes == 0; }
    [[nodiscard]] std::size_t needed_bytes() const noexcept {
        std::size_t bytes = 0;
        for (const Range& range : kept_) bytes += range.bytes;
        return bytes;
    }

    /// Takes all physical memory that the resume needs, or none: then throws OutOfMemory, and may be called again.
    void create() {
        const Status status = core_->memory_.pages.create_all(extents_);
        if (status.ok()) return;
        uncreate();
        core_->memory_.pages.raise_no_room(status, "take memory for a resume", needed_bytes());
    }

    /// Gives back what `create` took.
    void uncreate() noexcept { core_->memory_.pages.give_up_pages(extents_); }

    /// Brings the pages in sight. Throws what a failing driver call stands for.
    void map() {
        for (Extent<D>& extent : extents_) {
            check(extent.map(core_->driver()), "map pages at their address", extent.bytes(), extent.address());
            row_.mapped_bytes += extent.bytes();
        }
    }

    /// Starts bringing the bytes back. Throws what a policy throws.
    void enqueue() {
        if (kept_.empty()) return;
        restoring_ = Span{core_->options().events, core_->tag(), core_->device(), "restore"};
        tickets_.reserve(core_->memory_.pages.paused.size());
        for (const auto& batch : core_->memory_.pages.paused) { // under the turn, nobody else touches it
            std::vector<Range> ranges = intersection(batch.ranges, kept_);
            if (ranges.empty()) continue;
            tickets_.push_back(batch.slot->restore(core_->slots_.live_set(std::move(ranges), "restoring")));
        }
    }
    [[nodiscard]] std::vector<Ticket>& tickets() noexcept { return tickets_; }

    /// Waits until every byte is back. Throws if one could not be brought.
    void wait() {
        for (Ticket& ticket : tickets_) {
            core_->slots_.check_moved(ticket.wait(), "restore bytes", ticket.bytes());
            row_.restored_bytes += ticket.bytes();
        }
        restoring_.end();
    }

    /// The memory is the program's again.
    TagReport commit() noexcept {
        ArenaCore<D>& core = *std::exchange(core_, nullptr);
        tickets_.clear();
        {
            const std::lock_guard lock{core.memory_.pages.mutex};
            core.memory_.pages.activate(extents_);
        }
        core.memory_.end_operation(true); // while it is still known which ranges were paused
        // Nothing is launched before it is open: what is given up in shut memory counts as out of reach of all work.
        core.memory_.open_all();
        decltype(core.memory_.pages.paused) done;
        {
            const std::lock_guard lock{core.memory_.pages.mutex};
            done.swap(core.memory_.pages.paused);
        }
        for (const auto& batch : done) core.slots_.resumed(batch.slot); // may take a while: without a lock
        row_.held_bytes = core.memory_.held_bytes();
        return std::move(row_);
    }

private:
    /// Whether pages that could not be unmapped lie at paused addresses.
    [[nodiscard]] bool in_the_way() const {
        return !intersection(core_->memory_.pages.paused_ranges(), core_->memory_.pages.mapped_and_held()).empty();
    }

    /// Where the resume came to nothing. An aid: it goes as far as it goes.
    void cover_again() noexcept {
        try {
            core_->memory_.quarantined.reserve(kept_.size());
            core_->memory_.cover(kept_);
        } catch (const std::bad_alloc&) {
        }
    }

    void begin() {
        const std::vector<Range> paused = core_->memory_.pages.paused_ranges();
        const std::vector<Range> dead = core_->memory_.dead_ranges(paused);
        kept_ = without(paused, dead);
        extents_ = core_->memory_.pages.plan(kept_);
        core_->slots_.forget_paused(dead);
    }

    Turn::Hold turn_;
    ArenaCore<D>* core_;
    std::vector<Range> kept_;        // what comes back, sorted
    std::vector<Extent<D>> extents_; // for it
    std::vector<Ticket> tickets_;
    Span restoring_;
    TagReport row_;
};

} // namespace memsaver::inline v0_1
