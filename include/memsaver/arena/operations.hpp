// The operations of one arena, in steps: pause, resume and trim. run_steps.hpp runs those of many arenas together.
#pragma once

#include "memsaver/arena/arena_core.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

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

    Turn::Hold turn_;
    Borrowed core_;
    std::uint64_t fence_;
    TagReport row_;
    Status failure_;
};

/// One pause, in steps. The constructor begins it; then: wait for the device, `idle`, `enqueue`, `wait`, `release`,
/// `commit`. Destroying it before `release` leaves everything unchanged. It takes the active memory away, so while it
/// lives new blocks come from other memory, and blocks deallocated in its own stay as they are.
class ArenaCore::Pause final : public Step {
public:
    /// `once`: the policy for this pause, if not the tag's. Throws OutOfHostMemory, or DriverError if copies of an
    /// earlier, failed operation cannot be waited for; then nothing has changed.
    Pause(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once);
    ~Pause();

    /// Returns whether there is nothing to pause and nothing to report, not even a leftover that was released.
    [[nodiscard]] bool empty() const noexcept { return !takes() && failure_.ok() && row_.released_bytes == 0; }
    /// Returns whether it releases memory, so that work must be waited for first.
    [[nodiscard]] bool takes() const noexcept { return !taken_.empty() || released_; }

    /// Starts saving. Throws what the policy throws.
    void enqueue();
    [[nodiscard]] Ticket& ticket() noexcept { return ticket_; }

    /// Waits until every byte has been saved. Throws if a save failed.
    void wait();

    /// Releases the pages, or hands them over. From here on the memory is paused. Failures are recorded and reported by
    /// `commit`.
    void release() noexcept;

    /// Ends the operation and returns its row of the report. `status` receives the first failure, if any.
    TagReport commit(Status& status);

    // --- for an exchange: exchange.hpp ---

    /// Returns the extents taken, sorted by address. Valid until `commit`.
    [[nodiscard]] const std::vector<Extent*>& extents() const noexcept { return extents_; }
    /// Returns the scratch memory that `commit` releases in addition to the extents.
    [[nodiscard]] std::size_t scratch_bytes() const noexcept {
        return core_->own_scratch_ ? core_->own_scratch_->held_bytes() : 0;
    }
    /// Allocates the table for `hand_over_to`. Throws std::bad_alloc.
    void plan_handover() { targets_.resize(extents_.size()); }
    /// Makes `release` transfer the pages of an extent to `target`, an extent of the arena `core`, where they are
    /// mapped as well.
    void hand_over_to(std::size_t extent, Extent& target, ArenaCore& core) noexcept {
        targets_[extent] = {&target, &core};
    }
    /// After a failure: hands over nothing.
    void hand_over_nothing() noexcept { targets_.clear(); }
    /// Returns whether the policy keeps the bytes. If not, a ticket with bytes writes poison over pages handed over.
    [[nodiscard]] bool keeps_bytes() const noexcept { return keeps_; }
    /// After a failure, when pages may have been overwritten, but all saves were on their streams before: they complete
    /// unless the device is lost. Waits for the device; `release` must follow.
    void saved_anyway() noexcept;

private:
    struct Target {
        Extent* extent = nullptr;
        ArenaCore* core = nullptr;
    };

    TagReport finish() noexcept;

    bool keeps_; // the policy keeps the bytes
    bool enqueued_ = false;
    bool gone_ = false;     // `release` was called: the memory is paused
    bool released_ = false; // released elastic memory waits for work
    std::shared_ptr<AnySlot> slot_;
    std::vector<Memory*> taken_;     // leaving
    std::vector<Extent*> extents_;   // of all of it, sorted
    std::vector<Range> ranges_;      // of these, once the saves have begun
    std::vector<Target> targets_;    // one for each extent, if any is handed over
    std::size_t scratch_before_ = 0; // scratch bytes at the beginning
    Ticket ticket_;
    Span saving_;
};

/// One resume, in steps. The constructor begins it; then: `create`, `map`, `enqueue`, `wait`, `commit`. Destroying it
/// before `commit` leaves the memory paused as before and its backup complete. Paused memory in which no block lives is
/// not resumed, and adjacent ranges come back as one handle. Pages that could not be released are taken back as they
/// are. Move-only.
class ArenaCore::Resume final : public Step {
public:
    /// `once`: a policy that replaces the saved bytes for this resume. Throws OutOfHostMemory, or DriverError if copies
    /// of an earlier, failed operation cannot be waited for; then nothing has changed.
    Resume(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once = {});
    Resume(Resume&&) noexcept = default;
    ~Resume();

    /// Returns whether there is nothing to resume and nothing to report, not even a leftover that was released.
    [[nodiscard]] bool empty() const noexcept { return coming_.empty() && row_.released_bytes == 0; }
    /// Returns whether any memory comes back.
    [[nodiscard]] bool brings() const noexcept { return !coming_.empty(); }
    /// Returns the physical bytes that are still to be created.
    [[nodiscard]] std::size_t needed_bytes() const noexcept;
    /// Returns whether the bytes are restored from a backup.
    [[nodiscard]] bool brings_bytes() const noexcept { return !once_ && core_->policy_.keeps_bytes(); }

    /// Creates all physical memory that the resume needs, or none: then throws OutOfMemory, and may be called again.
    void create();
    /// Releases what `create` created.
    void uncreate() noexcept;
    /// Maps the created pages. Throws the error of a failing driver call.
    void map();

    /// Sets the ranges to restore first: see LiveSet. Must precede `enqueue`.
    void bring_first(std::vector<Range> ranges) noexcept { first_ = std::move(ranges); }
    /// Gives up the turn; the resume continues without it, and the program may use the memory. From here on any caller
    /// of `commit` or of the destructor must hold the turn; `wait` does not need it.
    void go_on_alone() noexcept;
    /// Makes the arena's gates wait for what `enqueue` has begun. Waits for bytes that have gates until their copies
    /// are on their streams. Throws the error of a failing call.
    void record_gates();

    /// Starts restoring the bytes. Throws what a policy throws. `before_write`: see LiveSet.
    void enqueue(const std::function<Status(Range)>& before_write = {});
    [[nodiscard]] std::vector<Ticket>& tickets() noexcept { return tickets_; }

    /// Waits until every byte has been restored. Throws if a restore failed.
    void wait();

    /// Ends the operation: the memory becomes active.
    TagReport commit() noexcept;

    // --- for an exchange: exchange.hpp ---

    /// Returns the memories that come back. Their extents may be replanned before `create`.
    [[nodiscard]] const std::vector<Memory*>& memories() const noexcept { return coming_; }
    /// Replaces the extents of one of them, which have no pages, by others over the same ranges. Throws std::bad_alloc;
    /// then nothing has changed.
    void plan(Memory& memory, std::vector<Extent> extents);
    /// Maps pages that another arena owns and will hand over. Throws the error of a failing driver call.
    void map_of(Extent& extent, PageHandle pages);
    /// Unmaps pages that another arena owns and will not hand over after all. Throws the error of a failing driver
    /// call.
    void unmap_handed();
    /// The memory can be found resident from here on. Counts a loss, once, if the saved bytes are not restored.
    void becomes_resident() noexcept;

private:
    void begin();
    void back_to_paused() noexcept;

    std::shared_ptr<AnySlot> once_;
    std::vector<Memory*> coming_;   // arriving
    bool enqueued_ = false;         // copies may be in flight, also those of a `restore` that threw
    bool resident_ = false;         // see `becomes_resident`
    std::vector<Range> first_;      // ranges to restore first
    std::vector<Ticket> tickets_;   // one for each memory
    std::size_t waited_ = 0;        // number of tickets waited for
    std::size_t scratch_bytes_ = 0; // created and not reported yet
    Span restoring_;
};

/// One trim, in steps. The constructor begins it; then: wait for the device, `idle`, `release`, `commit`.
class ArenaCore::Trim final : public Step {
public:
    Trim(ArenaCore& core, Turn::Hold turn) : Step{core, std::move(turn)} {}

    [[nodiscard]] static constexpr bool empty() noexcept { return false; }
    [[nodiscard]] static constexpr bool takes() noexcept { return true; } // freed blocks may be waiting for the device

    /// Releases extents that are entirely free. Failures are recorded and reported by `commit`.
    void release() noexcept;

    /// Ends the operation and returns its row of the report. `status` receives the first failure, if any.
    TagReport commit(Status& status) noexcept;

private:
    std::vector<Extent> take_unused();
};

using PauseStep = ArenaCore::Pause;
using ResumeStep = ArenaCore::Resume;
using TrimStep = ArenaCore::Trim;

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/operations.ipp"
#endif
