// One tag's memory on one device: grows, allocates blocks, pauses and resumes. Knows nothing about other tags.
#pragma once

#include "memsaver/arena/elastic_range.hpp"
#include "memsaver/arena/gates.hpp"
#include "memsaver/arena/owned_ranges.hpp"
#include "memsaver/arena/pages.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/retired_slots.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/heap/heaps.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The right to run an operation on an arena. Like a mutex, but held across waits, copies and driver calls, so code
/// that must be fast (`allocate`, `deallocate`, `usage`) never takes it.
class Turn {
public:
    /// Holds the turn until it is destroyed. Move-only.
    class [[nodiscard]] Hold {
    public:
        explicit Hold(Turn& turn) noexcept : turn_{&turn} {}
        Hold(Hold&& other) noexcept : turn_{std::exchange(other.turn_, nullptr)} {}
        Hold& operator=(Hold&&) = delete;
        ~Hold();

    private:
        Turn* turn_;
    };

    /// Waits for the turn. Throws NotIdle, naming `tag`, once the deadline has passed.
    Hold take(const Deadline& deadline = {}, const std::string& tag = {});

    /// Returns the turn if it is free now.
    std::optional<Hold> try_take();

    /// If another thread holds the turn, waits for its operation to end. Returns whether there was one.
    bool wait_for_others();

private:
    std::mutex mutex_;
    std::condition_variable freed_;
    bool taken_ = false;
    ThreadMark owner_;        ///< valid while the turn is taken
    std::uint64_t ended_ = 0; ///< number of operations that have ended
};

/// One tag's memory on one device. Keeps three data structures consistent: `pages_` (which addresses have memory),
/// `heaps_` (which bytes belong to which block) and the slots (saved bytes of paused memory).
///
/// Invariants:
///
/// - *Open and shut*. Memory known to `heaps_` is open or shut. Only open memory serves allocations. Memory is shut
///   while it is paused, or while a pause or resume works on it. A pause shuts all memory that is open when it begins;
///   growth meanwhile adds new open memory. When an operation ends, only paused memory stays shut. Exception: if host
///   memory runs out at that point, open memory stays shut until the next operation ends (`unfinished_`).
/// - *In hand*. An operation moves its extents out of `pages_.active`. They are in hand until it moves them back, holds
///   them or gives them up: counted in `pages_.in_hand`, with spare capacity for each in `pages_.active` and
///   `pages_.held`. So ending an operation needs no host memory for them. New extents of growth and of a resume are in
///   hand until they become active.
/// - *Deferred frees*. Blocks deallocated in shut memory during an operation are only noted. They become free when the
///   operation ends, or after a fence (see `end_operation`).
/// - *Paused batches*. `pages_.paused` and `arriving_` change only with both the turn and the pages' mutex held, so
///   either of the two suffices to read them.
///
///     open  --pause begins-->  shut, in hand  --pause ends-->  shut, paused  --resume ends-->  open
///                                   |
///                                   `-- pause dropped, or unmap failed -->  open
///
/// Locks, in acquisition order:
///
/// - the turn: one operation at a time. Held across waits, copies and driver calls.
/// - `growing_`: held by the one thread that adds extents, and by a pause or trim while it takes extents out. Held
///   across driver calls that do not wait for the device; only `close` waits while holding it.
/// - the pages' mutex, then the heaps' locks: bookkeeping only.
class ArenaCore final {
public:
    class Pause; // the operations, in steps; run_steps.hpp runs those of many arenas
    class Resume;
    class Trim;
    class SaveAhead;
    class Arriving; // bytes in flight while no operation holds the turn: arriving.hpp

    /// `on_segment` is called with every new range of addresses before blocks are allocated from it. Throws Misuse for
    /// invalid options, or the error of a failing driver call.
    ArenaCore(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
              std::function<void(Range)> on_segment = {});
    ArenaCore(const ArenaCore&) = delete;
    ArenaCore& operator=(const ArenaCore&) = delete;
    ~ArenaCore();

    /// Allocates the memory that `options.reserve` requests. The owner calls it after construction, and again after a
    /// failure; once it has succeeded, it is a no-op. Throws OutOfMemory if the memory does not fit.
    void reserve();

    /// Allocates device memory with undefined content. Throws Misuse (size 0 or too large for the arena, alignment not
    /// a power of two, closed), OutOfMemory, or the error of a failing driver call.
    void* allocate(const Request& request);

    /// Frees a block, paused or not. Throws Misuse unless `pointer` was returned by `allocate` and has not been freed
    /// since. Null is a no-op.
    void deallocate(void* pointer, const FreeOrder& order);

    /// Returns the kept bytes of `bytes` at `pointer`, which may point into a block: available while it is paused, and
    /// later for as long as the policy keeps them. Throws Misuse with the reason if there are none.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes);

    /// Returns the gate of `bytes` at `pointer`, which may point into a block; null if the bytes are always resident.
    /// See MemorySaver::gate.
    [[nodiscard]] std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes);
    /// If a streamed resume has failed to restore bytes, throws its failure.
    void require_restored();

    /// Replaces kept bytes of paused memory. See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes);

    /// Reads bytes from a file, now and at every resume. See MemorySaver::load. `reader` makes the policy that reads
    /// them if the arena's own policy cannot; it is a parameter so that programs that never load do not compile it.
    void load(void* pointer, const FileRange& from, AnyPolicy (*reader)() = nullptr);

    /// Marks these bytes as changed. See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes);

    /// Returns whether an address lies in this arena.
    [[nodiscard]] bool contains(const void* pointer) const noexcept;

    /// Returns whether `bytes` at `pointer`, which may point into a block, lie in live blocks.
    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes);

    /// Returns whether these bytes lie in live blocks and are resident: not paused, not being paused and not in flight.
    [[nodiscard]] bool here(const void* pointer, std::size_t bytes);

    /// Reserves addresses for `cap` bytes, rounded up to whole pages, without memory. Throws Misuse (0, more than the
    /// arena's capacity, closed), or the error of a failing driver call.
    [[nodiscard]] std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap);

    /// Reserves addresses for `bytes`, rounded up to whole steps of `step` bytes (rounded up to whole pages), without
    /// memory. Throws Misuse (a size is 0 or too large, closed), or the error of a failing driver call.
    [[nodiscard]] std::unique_ptr<ElasticRange> reserve_elastic(std::size_t bytes, std::size_t step);

    /// Fills `bytes` of a live block of this arena with zeros, in stream order; recorded if `stream` is being captured.
    /// Waits for bytes that are being restored. Throws Misuse if they are paused or being paused, or the error of a
    /// failing driver call.
    void zero(void* pointer, std::size_t bytes, StreamRef stream);

    /// Returns whether a stream belongs to the arena's device. True for the default stream, and if the driver cannot
    /// tell.
    [[nodiscard]] bool owns_stream(StreamRef stream) const;

    /// `deallocate` for owners that may outlive `close()` and must not throw. Failures go to the event sink.
    void deallocate_quietly(void* pointer, const FreeOrder& order) noexcept;

    /// Frees the blocks that were deallocated while `graph` was captured, as if deallocated now: the graph is gone.
    void let_go(std::uint64_t graph) noexcept;

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) const;

    /// Throws Misuse, beginning with `what`, if any of the memory is paused or being paused, or the arena is closed. If
    /// bytes are being restored, makes `stream` wait for them; throws Misuse if they could not be restored.
    void require_resumed(const char* what, StreamRef stream);

    [[nodiscard]] ArenaUsage usage();
    [[nodiscard]] const std::string& tag() const noexcept { return pages_.tag(); }
    [[nodiscard]] int device() const noexcept { return driver().device(); }
    [[nodiscard]] const AnyDriver& driver() const noexcept { return pages_.driver(); }
    [[nodiscard]] const AnyPolicy& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return pages_.options(); }
    void set_capacity(std::size_t bytes) noexcept { pages_.set_capacity(bytes); }
    void set_margin(std::size_t bytes) noexcept { pages_.set_margin(bytes); }
    [[nodiscard]] std::size_t margin() const noexcept { return pages_.margin(); }

    /// Waits for the turn, then until bytes in flight have arrived or failed to arrive. Throws NotIdle once the
    /// deadline has passed; Misuse, beginning with `what`, after `close`. With `join`, does not wait for bytes that a
    /// streamed resume is still restoring.
    Turn::Hold take_turn(const Deadline& deadline = {}, const char* what = "use", bool join = false);
    /// Returns the turn if it is free and no bytes in flight have to be waited for. Empty after `close` and in a forked
    /// child.
    std::optional<Turn::Hold> try_turn();
    /// Waits for another thread's operation on this arena, and for bytes in flight. Returns whether there were any.
    bool wait_for_others() noexcept { return turn_.wait_for_others() || finish_arriving(); }

    /// Returns the bytes in flight, if any; also bytes whose restore failed, until the next pause or resume.
    [[nodiscard]] std::shared_ptr<Arriving> arriving() noexcept;
    /// Waits until the bytes in flight have arrived, and commits them. Takes the turn. Returns whether there were any.
    /// Failures are reported to the threads that wait for the arrival.
    bool finish_arriving() noexcept;
    /// Sets the bytes in flight that continue without the turn, or null. Requires the turn.
    void set_arriving(std::shared_ptr<Arriving> arriving) noexcept;

    /// Releases unused memory and returns the number of bytes released; with `wait`, once all work submitted to the
    /// device so far has completed. Releases nothing while another thread's operation is in progress.
    std::size_t release_unused(bool wait) noexcept;

    // --- cheap queries, for callers that query many arenas ---

    /// Returns the physical bytes of all existing handles.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept {
        return pages_.physical_bytes() + (own_scratch_ ? own_scratch_->held_bytes() : 0);
    }
    /// Returns whether freed blocks or released pages wait for device work.
    [[nodiscard]] bool anything_waits() { return heaps_.anything_waits() || pages_.anything_waits(); }
    /// Returns whether a pause or a trim would have nothing to do.
    [[nodiscard]] bool idle_for_pause() const noexcept { return mapped_bytes() == 0 && spent_.empty(); }
    /// Returns whether a resume would have nothing to do.
    [[nodiscard]] bool nothing_paused() noexcept;
    /// Returns how many pauses have released pages.
    [[nodiscard]] std::uint64_t pauses() const noexcept { return pauses_.load(); }
    /// Returns whether no memory is paused or being paused. Held pages do not count.
    [[nodiscard]] bool all_resident() noexcept;
    /// Returns whether all paused memory has been mapped and its bytes are being restored.
    [[nodiscard]] bool on_its_way() noexcept;
    /// Returns whether some pages are active or are just being paused.
    [[nodiscard]] bool any_resident() noexcept;

    /// Returns whether this process is a forked child of the one that made the arena. The owner must then leave the
    /// arena alone, because its memory and files belong to the parent.
    [[nodiscard]] bool forked() const noexcept { return fork_check_.forked(); }

    /// Returns the physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume();
    /// Allocates in advance the resources that saving the live blocks needs. Thread-safe; allocations continue
    /// meanwhile.
    void prepare();
    /// Marks all saved bytes as out of date, because the program changed them: the next pause saves them again.
    void invalidate();
    /// Drops the backup of memory that is paused now: a resume then behaves as after a pause with `Discard`. Calls
    /// `dropping()` with the turn held before it drops anything; no resume can run meanwhile.
    void forget_backup(FunctionRef<void()> dropping);
    /// Throws Misuse if the policy has no such option. Waits for an operation that is in progress.
    void set_retain(bool yes);
    /// Waits for the device and releases everything. Later calls throw Misuse, except those made by destructors. A lost
    /// device is not a failure. Throws the error of the first failing driver call after trying everything; the next
    /// call retries what is left. `closing` is called once no block can be allocated any more, before the addresses are
    /// unreserved. If the device cannot be waited for, `closing` is not called and the arena stays open.
    void close(FunctionRef<void()> closing = [] {});
    [[nodiscard]] bool closed() const noexcept { return closed_.load(); }

    // Used by `usage`.
    std::atomic<std::size_t> elastic_bytes{0};

    // Used by a saver's table of tags, which visits only arenas that may hold something.
    std::uint64_t arena_serial;
    std::atomic<bool> listed{true};

    /// Set once the tag is dropped or about to be. Used in error messages about a closed arena.
    std::atomic<bool> dropped{false};
    /// Returns what happened to a closed arena, for error messages: it was closed, or its tag was dropped.
    [[nodiscard]] const char* end() const noexcept { return dropped.load() ? "dropped" : "closed"; }

private:
    class Reserved; // addresses reserved up front; Growing and ElasticPages map memory there: arena_core.ipp
    class Growing;  // a block that grows
    class ElasticPages;

    // --- growth ---

    /// Returns a block of `size` bytes (a multiple of 256) from open memory, growing the arena if necessary. Throws
    /// OutOfMemory only after all unused memory of the arena has been reclaimed, waiting for the device if necessary;
    /// or after other threads have `most_reclaims` times taken the memory that it reclaimed.
    Address take_block(std::size_t size, const Request& request);
    static constexpr int most_reclaims = 64;
    static constexpr int gentle_reclaims = 8; // the first of them keep the arena's pages
    /// Adds open memory for a block of `bytes`, unless another thread has grown the arena since `seen`.
    void grow(std::uint64_t seen, std::size_t bytes, std::size_t alignment);
    /// Throws Misuse if `more` bytes exceed what the program's capacity leaves.
    void check_capacity(std::size_t more) const;
    /// Makes all unused memory of the arena reusable and releases free extents. Waits for the device if freed memory
    /// waits for it. Returns whether anything changed. `gentle`: keeps the pages if freed memory waited, because that
    /// memory may be enough. `waits`: how many more times to wait for another thread's operation; decremented.
    bool reclaim_own(bool gentle, int& waits);
    [[nodiscard]] std::size_t check_request(const Request& request) const;

    // --- operations ---

    /// Returns the physical bytes of handles that could not be released so far.
    [[nodiscard]] std::size_t held_bytes();
    /// Calls `act(scratch)` for the scratch memory of each slot that keeps paused bytes. Requires the turn or the
    /// pages' mutex.
    template <class Act>
    void each_paused_scratch(const Act& act) const {
        const auto& paused = pages_.paused;
        for (std::size_t i = 0; i < paused.size(); ++i) {
            const bool known = std::any_of(paused.begin(), paused.begin() + static_cast<std::ptrdiff_t>(i),
                                           [&](const auto& batch) { return batch.slot == paused[i].slot; });
            if (const auto scratch = known ? nullptr : paused[i].slot->scratch()) act(*scratch);
        }
    }
    /// Releases a slot's scratch memory and adds its size to `released_bytes`. Requires the turn.
    static Status release_scratch(const std::shared_ptr<AnySlot>& slot, std::size_t& released_bytes) noexcept;
    /// Retries the release of held handles and adds the bytes released to `released_bytes`. Requires the turn.
    Status retry_held(std::size_t& released_bytes);
    /// Returns the parts of paused ranges that a resume leaves out: whole granules in which no block lives, if large
    /// enough to be worth it.
    [[nodiscard]] std::vector<Range> dead_ranges(const std::vector<Range>& paused);
    [[nodiscard]] std::vector<Range> ranges_to_resume();
    /// Releases held pages, in particular those of elastic releases whose work has completed in the meantime.
    Status collect_released(std::size_t& released_bytes) noexcept;
    /// Returns a mark for all work submitted to the device so far. It counts as completed once a fence that begins
    /// later has ended.
    [[nodiscard]] std::shared_ptr<const WorkMark> next_fence();
    /// Returns whether a streamed resume is restoring bytes, or has failed to.
    [[nodiscard]] bool coming_back() noexcept;
    /// Makes the stream wait for bytes that are being restored. Returns whether there are any. See require_resumed.
    bool follow_arriving(StreamRef stream, const char* what);
    void cancel_arriving() noexcept;
    // Bytes in flight; all of these require the turn.
    /// Waits for the bytes in flight, and commits them. Throws NotIdle once the deadline has passed. With `join`, does
    /// not wait for bytes that are being restored.
    void commit_arriving(const Deadline& deadline = {}, bool join = false);
    /// Commits the bytes in flight if that requires no waiting. Returns whether nothing is in flight afterwards.
    bool try_settle_arriving() noexcept;
    /// Makes memory whose restore failed paused again: waits for the device, then releases the pages.
    void give_up_failed_arrival() noexcept;
    /// Drops paused ranges in which no block lives, and ends slots that keep nothing afterwards. Requires the turn. May
    /// throw std::bad_alloc; ranges dropped until then stay dropped, because they belonged to no block.
    void drop_dead(const std::vector<Range>& dead);
    /// `slots_in_use` returns the slots that keep paused bytes; may throw std::bad_alloc. `end_slots` ends those of
    /// `slots` that no longer keep any. Both require the turn.
    [[nodiscard]] std::vector<std::shared_ptr<AnySlot>> slots_in_use();
    void end_slots(const std::vector<std::shared_ptr<AnySlot>>& slots) noexcept;
    /// Drops the dead ranges of all paused memory, so that their addresses can be reused, except where pages that could
    /// not be unmapped still lie. Requires the turn.
    void drop_all_dead();
    void open_all() noexcept;
    /// Ends an operation: reopens memory that is not paused. Blocks deallocated in paused memory become free, because
    /// no work can touch them. `shut_stays`: the caller knows that exactly the memory that is shut now is paused, which
    /// saves sorting the free blocks.
    void end_operation(bool shut_stays) noexcept;
    /// Returns whether any part of a range, in which blocks live, is paused or being paused.
    [[nodiscard]] bool any_paused(Range range);

    // --- slots: require the turn; none is destroyed or releases anything under a lock that an allocation may need ---

    /// Returns the live block that contains the whole range. Throws the result of `refusal(why)` if there is none.
    /// Requires the turn.
    template <class Refusal>
    [[nodiscard]] LiveBlock block_of(Range range, Refusal&& refusal) {
        if (range.bytes == 0) throw refusal("the size is 0");
        if (!heaps_.contains(range.address)) throw refusal("the address does not belong to this tag");
        const std::optional<LiveBlock> block = heaps_.block_holding(range.address);
        if (!block) throw refusal("no live block contains this address, nor a committed part of an elastic range");
        if (range.bytes > block->bytes - (range.address - block->address))
            throw refusal("it extends past the end of its block");
        return *block;
    }
    /// Returns the description of these ranges that is passed to a slot. Must not outlive the arena.
    [[nodiscard]] LiveSet live_set(std::vector<Range> ranges, const char* what);
    /// Throws the error of a failed transfer, naming the tag.
    void check_moved(const Status& status, const Attempt& attempt, std::size_t bytes) const;
    /// Notifies a slot that its restored bytes belong to the program again. Retires it unless it is the tag's own.
    void slot_resumed(const std::shared_ptr<AnySlot>& slot) noexcept;
    /// Closes a slot that is no longer needed, unless it is the tag's own.
    void retire_slot(std::shared_ptr<AnySlot> slot) noexcept;
    /// Closes all slots. Returns the first failure; the next call retries what is left. A lost device is not a failure.
    Status close_slots() noexcept;

    // --- texts ---

    /// Throws Misuse after `close`, and in a forked child. `what()` returns a text that describes the call.
    template <class What>
    void require_open_for(What&& what) const {
        if (!fork_check_.forked() && !closed_.load()) return;
        const std::string wanted = what();
        fork_check_.require_parent(wanted.c_str());
        throw Misuse{wanted + ": tag \"" + tag() + "\" has been " + end()};
    }
    /// Throws the error of a failing driver call, naming the tag.
    void check_of_tag(const Status& status, const Attempt& attempt) const;
    [[nodiscard]] Event event(EventKind kind, std::string text, std::size_t done = 0, std::size_t total = 0) const;
    void emit_ignored(const char* text) const noexcept;
    void tell_kept(const Status& status) const noexcept;

    AnyPolicy policy_;
    Turn turn_;
    ForkCheck fork_check_;
    std::atomic<bool> closed_{false};
    ArenaPages pages_;
    Heaps heaps_;
    OwnedRanges owned_ranges_;
    std::mutex growing_;
    std::atomic<std::uint64_t> growths_{0};
    std::atomic<bool> reserved_{false};
    std::atomic<std::uint64_t> pauses_{0};
    bool pausing_ = false;         // guarded by the pages' mutex: a pause with extents in hand is in progress
    bool unfinished_ = false;      // guarded by the turn: the last operation left memory shut that is not paused
    std::shared_ptr<AnySlot> own_; // the tag's slot; changed only by `close`, under the heaps' locks
    const std::shared_ptr<DeviceScratch> own_scratch_ = own_->scratch(); // for readers without a lock
    std::shared_ptr<Arriving> arriving_;                                 // changed under the turn and the pages' mutex
    RetiredSlots spent_;
    ArenaGates gates_; // guarded by the turn
};

/// One pause, in steps. The constructor begins it; then: wait for the device, `idle`, `enqueue`, `wait`, `release`,
/// `commit`. Destroying it before `release` leaves everything unchanged. While it lives, the memory that the arena had
/// at its beginning serves no allocation (new blocks come from new extents), and blocks deallocated there stay as they
/// are. Move-only.
class ArenaCore::Pause {
public:
    /// `once`: the policy for this pause, if not the tag's. Throws OutOfHostMemory, or DriverError if copies of an
    /// earlier, failed operation cannot be waited for; then nothing has changed.
    Pause(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once);
    Pause(Pause&& other) noexcept;
    Pause& operator=(Pause&&) = delete;
    ~Pause();

    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }
    /// Returns whether there is nothing to pause and nothing to report, not even a held handle that was released.
    [[nodiscard]] bool empty() const noexcept { return !takes() && failure_.ok() && row_.released_bytes == 0; }
    /// Returns whether it releases memory, so that work must be waited for first.
    [[nodiscard]] bool takes() const noexcept { return !ranges_.empty() || released_; }

    /// Notes that the work to wait for has completed. `whole_device`: that was all work of the device, so it is a
    /// fence.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept;

    /// Starts saving. Throws what the policy throws.
    void enqueue();
    [[nodiscard]] Ticket& ticket() noexcept { return ticket_; }

    /// Returns the extents in hand. Valid until `release`.
    [[nodiscard]] const std::vector<Extent>& extents() const noexcept { return extents_; }
    /// Returns the scratch memory that `commit` releases in addition to the extents.
    [[nodiscard]] std::size_t scratch_bytes() const noexcept {
        return core_->own_scratch_ ? core_->own_scratch_->held_bytes() : 0;
    }
    /// Allocates the table for `hand_over_to`. Throws std::bad_alloc.
    void plan_handover();
    /// Makes `release` transfer the pages of an extent to `target`, an extent of the arena with the pages `pages`,
    /// where they are mapped as well.
    void hand_over_to(std::size_t extent, Extent& target, ArenaPages& pages) noexcept {
        targets_[extent] = {&target, &pages};
    }
    /// Returns whether the policy keeps the bytes. If not, a ticket with bytes writes poison over pages handed over.
    [[nodiscard]] bool keeps_bytes() const noexcept { return keeps_; }

    /// Waits until every byte has been saved. Throws if a save failed.
    void wait();

    /// Releases the pages, or hands them over. Failures are recorded and reported by `commit`.
    void release() noexcept;
    /// After a failure: releases only the flagged extents, whose pages have been overwritten. Hands over nothing; the
    /// rest stays active. `saved`: whether the previous content of the flagged extents was saved.
    void release_only(const std::vector<bool>& extents, bool saved) noexcept;

    /// Ends the operation and returns its row of the report. `status` receives the first failure, if any.
    TagReport commit(Status& status);

private:
    /// The new owner of pages that are handed over.
    struct HandoverTarget {
        Extent* extent = nullptr;
        ArenaPages* pages = nullptr;
    };

    void note(const Status& status) noexcept;
    /// `last`: pauses the extent even if it cannot be unmapped; it is then held.
    void release(Extent& extent, HandoverTarget target, bool last) noexcept;

    TagReport finish() noexcept;

    Turn::Hold turn_;
    ArenaCore* core_;
    bool once_;
    bool enqueued_ = false;
    bool in_part_ = false;  // the paused part was saved, the rest perhaps not
    bool released_ = false; // released elastic memory waits for work
    bool keeps_;            // the policy keeps the bytes
    std::shared_ptr<AnySlot> slot_;
    std::uint64_t fence_;
    std::vector<Range> ranges_;           // of all extents concerned, sorted
    std::vector<Extent> extents_;         // moved out of the arena, active
    std::vector<HandoverTarget> targets_; // one for each extent, if any is handed over
    std::size_t scratch_before_ = 0;      // scratch bytes at the beginning
    std::vector<Extent> left_;            // extents that could not be unmapped
    std::vector<Range> paused_;           // ranges that were unmapped
    Ticket ticket_;
    Span saving_;
    TagReport row_;
    Status failure_;
};

/// One resume, in steps. The constructor begins it; then: `create`, `map`, `enqueue`, `wait`, `commit`. Destroying it
/// before `commit` leaves the memory paused as before and its backup complete. Paused memory in which no block lives is
/// not resumed, and adjacent ranges come back as one handle. Move-only.
class ArenaCore::Resume {
public:
    /// `once`: a policy that replaces the saved bytes for this resume. Throws OutOfHostMemory, or DriverError if pages
    /// that could not be released earlier are still mapped at paused addresses; then nothing has changed.
    Resume(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once = {});
    Resume(Resume&& other) noexcept;
    Resume& operator=(Resume&&) = delete;
    ~Resume();

    [[nodiscard]] const std::string& tag() const noexcept { return core_->tag(); } // not after `commit`
    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    /// Returns whether there is nothing to resume and nothing to report, not even a held handle that was released.
    [[nodiscard]] bool empty() const noexcept { return kept_.empty() && row_.released_bytes == 0; }
    /// Returns the physical bytes that are still to be created.
    [[nodiscard]] std::size_t needed_bytes() const noexcept;
    /// Returns the part of `needed_bytes` that the slots need as scratch memory.
    [[nodiscard]] std::size_t needed_scratch() const noexcept;
    /// Returns whether the bytes are restored from a backup.
    [[nodiscard]] bool brings_bytes() const noexcept { return !once_ && core_->policy_.keeps_bytes(); }

    /// Returns the ranges to resume, sorted.
    [[nodiscard]] const std::vector<Range>& ranges() const noexcept { return kept_; }
    /// Replaces the planned extents by one for each of `ranges`, which together are all of `ranges()`. Must come first.
    /// Strong exception guarantee.
    void plan(const std::vector<Range>& ranges) { core_->pages_.plan_again(extents_, ranges); }
    [[nodiscard]] std::vector<Extent>& extents() noexcept { return extents_; }
    [[nodiscard]] ArenaPages& pages() noexcept { return core_->pages_; }
    /// Maps pages that another arena owns and will hand over. Throws the error of a failing driver call.
    void map_of(Extent& extent, const Extent& owner);

    /// Sets whether `create` does nothing for now.
    void put_off(bool yes) noexcept { put_off_ = yes; }
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
    /// Makes the arena's gates wait for what `enqueue` has begun. Waits for bytes whose copies are not on a stream yet.
    /// Throws the error of a failing call.
    void record_gates();

    /// Starts restoring the bytes of extents that are mapped and not begun yet. Throws what a policy throws.
    /// `before_write`: see LiveSet.
    void enqueue(const std::function<Status(Range)>& before_write = {});
    [[nodiscard]] std::vector<Ticket>& tickets() noexcept { return tickets_; }

    /// Waits until every byte has been restored. Throws if a restore failed.
    void wait();

    /// Ends the operation: the extents become active and open.
    TagReport commit() noexcept;

private:
    /// Returns whether pages that could not be unmapped lie at paused addresses.
    [[nodiscard]] bool in_the_way() const;

    void begin();

    Turn::Hold turn_;
    ArenaCore* core_;
    std::shared_ptr<AnySlot> once_;
    std::vector<Range> kept_;     // the ranges to resume, sorted
    std::vector<Extent> extents_; // extents for them
    bool put_off_ = false;
    bool alone_ = false;       // has given up the turn
    bool enqueued_ = false;    // copies may be in flight, also those of a `restore` that threw
    std::vector<Range> first_; // ranges to restore first
    std::vector<Range> begun_; // ranges that `enqueue` has begun
    std::vector<Ticket> tickets_;
    std::vector<std::vector<Range>> coming_; // the ranges that each ticket restores
    std::size_t waited_ = 0;                 // number of tickets waited for
    std::size_t scratch_bytes_ = 0;          // created and not reported yet
    Span restoring_;
    TagReport row_;
};

/// One trim, in steps. The constructor begins it; then: wait for the device, `idle`, `release`, `commit`. Move-only.
class ArenaCore::Trim {
public:
    Trim(ArenaCore& core, Turn::Hold turn);
    /// Runs within a turn that the caller holds.
    explicit Trim(ArenaCore& core);
    Trim(Trim&&) noexcept = default;
    Trim& operator=(Trim&&) = delete;

    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }
    [[nodiscard]] static constexpr bool empty() noexcept { return false; }
    [[nodiscard]] static constexpr bool takes() noexcept { return true; } // freed blocks may be waiting for the device

    /// As Pause::idle. With `whole_device`, blocks freed before the trim are free.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept;

    /// Releases extents that are entirely free. Failures are recorded and reported by `commit`.
    void release() noexcept;

    /// Ends the operation and returns its row of the report. `status` receives the first failure, if any.
    TagReport commit(Status& status) noexcept;

private:
    void note(const Status& status) noexcept;

    /// Releases an extent. If that fails, the extent is active again or held.
    void give_back(Extent& extent) noexcept;
    bool open_again(Range range) noexcept;

    std::vector<Extent> take_unused();

    /// Takes a free range out of the heaps. Returns false if it is no longer free or host memory is lacking; it then
    /// stays, which is not a failure of the trim.
    bool take_out(Range range) noexcept;

    std::optional<Turn::Hold> turn_;
    ArenaCore* core_;
    std::uint64_t fence_;
    TagReport row_;
    Status failure_;
};

using PauseStep = ArenaCore::Pause;
using ResumeStep = ArenaCore::Resume;
using TrimStep = ArenaCore::Trim;

/// Releases unused memory within a turn that the caller holds. With `wait`, first waits for the device if anything
/// depends on it. Returns the bytes released; the next call retries what failed.
std::size_t trim_now(ArenaCore& core, bool wait = false);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arena_core.ipp"
#endif
