// One tag's memory on one device: grows, allocates blocks, pauses and resumes. Knows nothing about other tags.
#pragma once

#include "memsaver/arena/addresses.hpp"
#include "memsaver/arena/gates.hpp"
#include "memsaver/arena/memory.hpp"
#include "memsaver/arena/options.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/driver/attic.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/heap/frees.hpp"
#include "memsaver/heap/live_block.hpp"

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

class ElasticRange;
class GraphKeeps; // graph_keeps.hpp

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

    /// Waits for the turn. Throws NotIdle, naming `tag`, once the deadline has passed; Misuse if this thread holds it,
    /// for it would wait for itself.
    Hold take(const Deadline& deadline = {}, const std::string& tag = {});

    /// Returns the turn if it is free now.
    std::optional<Hold> try_take();

    /// What an operation waits for: the program's own work (or other arenas), or only for its own copies.
    enum class Stage : unsigned char { waits, moves };
    /// Says what the holder waits for from now on. A new holder begins with `waits`.
    void now(Stage stage) noexcept;

    /// If another thread holds the turn and has only its own copies left, waits for its operation to end. Returns
    /// whether there was one.
    bool wait_for_copies(const Deadline& deadline);

    /// Returns how many operations have ended.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_.load(); }

private:
    std::mutex mutex_;
    std::condition_variable freed_;
    bool taken_ = false;
    Stage stage_ = Stage::waits;
    ThreadMark owner_; ///< valid while the turn is taken
    std::atomic<std::uint64_t> ended_{0};
};

/// Returns the driver's granularity: sizes and addresses of pages are multiples of it. Throws the error of a failing
/// driver call.
[[nodiscard]] std::size_t granularity_of(const AnyDriver& driver);

[[nodiscard]] Address as_address(const void* pointer) noexcept;
[[nodiscard]] void* pointer_of(Address address) noexcept;

/// One tag's memory on one device: a list of memories (see Memory), one slot that keeps their bytes, and addresses.
///
/// Locks: the turn (one operation at a time, held across waits, copies and driver calls), then the mutex (bookkeeping
/// only: never held during a wait, a copy, a call of the driver or of the program). Growth is a flag under the mutex:
/// one thread at a time creates and maps new pages, without holding either.
class ArenaCore final : public std::enable_shared_from_this<ArenaCore> {
public:
    class Step;
    class Pause; // the operations, in steps; run_steps.hpp runs those of many arenas
    class Resume;
    class Trim;
    class SaveAhead;
    class Arriving; // bytes in flight while no operation holds the turn: arriving.hpp

    struct KeepAlive {
        void operator()(ArenaCore*) const noexcept {}
    };
    /// The arena of a step, which is null once the step has ended or has been moved from.
    using Borrowed = std::unique_ptr<ArenaCore, KeepAlive>;

    static constexpr std::size_t default_alignment = Request::default_alignment;

    /// `on_segment` is called with every new range of addresses, and the arena, before blocks are allocated from it.
    /// Throws Misuse for invalid options, or the error of a failing driver call.
    ArenaCore(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
              std::function<void(Range, std::shared_ptr<ArenaCore>)> on_segment = {});
    ArenaCore(const ArenaCore&) = delete;
    ArenaCore& operator=(const ArenaCore&) = delete;
    ~ArenaCore();

    /// Allocates the memory that `options.reserve` requests. The owner calls it after construction, and again after a
    /// failure. Throws OutOfMemory if the memory does not fit.
    void reserve();

    // --- blocks ---

    /// Allocates device memory with undefined content. Throws Misuse (size 0 or too large for the arena, alignment not
    /// a power of two, closed), OutOfMemory, or the error of a failing driver call.
    void* allocate(const Request& request);
    /// Frees a block, paused or not. Throws Misuse unless `pointer` was returned by `allocate` and has not been freed
    /// since. Null is a no-op. `graph`: of the graph whose replays touch the block, if it is freed in a capture. If it
    /// is of a capture unknown to the saver, the block stays until the arena closes.
    void deallocate(void* pointer, const FreeOrder& order, const std::shared_ptr<GraphKeeps>& graph = {});
    /// `deallocate` for owners that may outlive `close()` and must not throw. Failures go to the event sink.
    void deallocate_quietly(void* pointer, const FreeOrder& order,
                            const std::shared_ptr<GraphKeeps>& graph = {}) noexcept;

    /// Fills `bytes` of a live block of this arena with zeros, in stream order; recorded if `stream` is being captured.
    /// Waits for bytes that are being restored. Throws Misuse if they are paused or being paused, or the error of a
    /// failing driver call.
    void zero(void* pointer, std::size_t bytes, StreamRef stream);

    /// Reserves addresses for `bytes`, rounded up to whole steps of `step` bytes (rounded up to whole pages), without
    /// memory. Throws Misuse (a size is 0 or too large, closed), or the error of a failing driver call. `whole`: what
    /// is committed together is one block and can only be released together, as workspaces want it.
    [[nodiscard]] std::unique_ptr<ElasticRange> reserve_elastic(std::size_t bytes, std::size_t step,
                                                                bool whole = false);

    // --- their bytes ---

    /// Returns the kept bytes of `bytes` at `pointer`, which may point into a block: available while it is paused, and
    /// later for as long as the policy keeps them. Throws Misuse with the reason if there are none.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes);
    /// Replaces kept bytes of paused memory. See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes);
    /// Reads bytes from a file, now and at every resume. See MemorySaver::load.
    void load(void* pointer, const FileRange& from);
    /// Marks these bytes as changed. See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes);
    /// Marks all saved bytes as out of date, because the program changed them: the next pause saves them again.
    void invalidate();
    /// Allocates in advance the resources that saving the live blocks needs. Thread-safe; allocations continue
    /// meanwhile.
    void prepare();
    /// Drops the backup of memory that is paused now: a resume then behaves as after a pause with `Discard`.
    void forget_backup();
    /// Throws Misuse if the policy has no such option. Waits for an operation that is in progress.
    void set_retain(bool yes);
    /// Frees the host memory that copies pass through, of all arenas that share this one's budget.
    void trim_host() noexcept;
    /// Returns the gate of `bytes` at `pointer`, which may point into a block. See MemorySaver::gate.
    [[nodiscard]] std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes);
    /// If a streamed resume has failed to restore bytes, throws its failure.
    void require_restored();

    // --- queries ---

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) const;
    /// Throws Misuse, beginning with `what`, if any of the memory is paused or being paused, or the arena is closed. If
    /// bytes are being restored, makes `stream` wait for them; throws Misuse if they could not be restored.
    void require_resumed(const char* what, StreamRef stream);
    /// Returns whether a stream belongs to the arena's device. True for the default stream, and if the driver cannot
    /// tell.
    [[nodiscard]] bool owns_stream(StreamRef stream) const;
    /// Returns whether an address lies in this arena.
    [[nodiscard]] bool contains(const void* pointer) const noexcept;
    /// Returns whether `bytes` at `pointer`, which may point into a block, lie in live blocks.
    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes);
    /// Returns whether these bytes lie in live blocks and are resident: not paused, not being paused and not in flight.
    [[nodiscard]] bool here(const void* pointer, std::size_t bytes);
    [[nodiscard]] ArenaUsage usage();

    [[nodiscard]] const std::string& tag() const noexcept { return tag_; }
    [[nodiscard]] int device() const noexcept { return driver_.device(); }
    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] const AnyPolicy& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return options_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    void set_capacity(std::size_t bytes) noexcept { capacity_.store(bytes); }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_.load(); }
    void set_margin(std::size_t bytes) noexcept { margin_.store(bytes); }
    [[nodiscard]] std::size_t margin() const noexcept { return margin_.load(); }

    /// Returns the physical bytes of all existing handles.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept {
        return physical_bytes_.load() + (own_scratch_ ? own_scratch_->held_bytes() : 0);
    }
    /// Returns whether freed blocks or released pages wait for device work.
    [[nodiscard]] bool anything_waits();
    /// Returns whether a pause or a trim would have nothing to do.
    [[nodiscard]] bool idle_for_pause() const noexcept;
    /// Returns whether a resume would have nothing to do.
    [[nodiscard]] bool nothing_paused() noexcept;
    /// Returns how many pauses have released pages.
    [[nodiscard]] std::uint64_t pauses() const noexcept { return pauses_.load(); }
    /// Returns how often bytes were given up: by a policy that keeps none, or by `forget_backup`. Counted before the
    /// memory can be found resident again.
    [[nodiscard]] std::uint64_t losses() const noexcept { return losses_.load(); }
    /// Returns whether no memory is paused or being paused. Held pages do not count.
    [[nodiscard]] bool all_resident() noexcept;
    /// Returns whether all paused memory has been mapped and its bytes are being restored.
    [[nodiscard]] bool on_its_way() noexcept;
    /// Returns whether some pages are active or are just being paused.
    [[nodiscard]] bool any_resident() noexcept;
    /// Returns the physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume();

    // --- operations ---

    /// Waits for the turn, then until bytes in flight have arrived or failed to arrive. Throws NotIdle once the
    /// deadline has passed; Misuse, beginning with `what`, after `close`. With `join`, does not wait for bytes that a
    /// streamed resume is still restoring.
    Turn::Hold take_turn(const Deadline& deadline = {}, const char* what = "use", bool join = false);
    /// Waits for the device if a `recover` would, which knows no deadline. By an event, which breaks captures: only for
    /// operations that keep them out, and wait for no streams named by the program. Requires the turn. Throws NotIdle
    /// once the deadline has passed.
    void await_copies(const Deadline& deadline);
    /// Returns the turn if it is free and no bytes in flight have to be waited for. Empty after `close` and in a forked
    /// child.
    std::optional<Turn::Hold> try_turn();
    /// Waits until another thread's operation on this arena ends, if that has only its own copies left, and for bytes
    /// in flight. Returns whether there were any.
    bool wait_for_copies(const Deadline& deadline) noexcept;
    /// Says what the operation that holds the turn waits for.
    void now(Turn::Stage stage) noexcept { turn_.now(stage); }

    /// Returns the bytes in flight, if any; also bytes whose restore failed, until the next pause or resume.
    [[nodiscard]] std::shared_ptr<Arriving> arriving() noexcept;
    /// Waits until the bytes in flight have arrived, and commits them. Takes the turn. Returns whether there were any.
    /// Failures are reported to the threads that wait for the arrival.
    bool finish_arriving() noexcept;
    /// Sets the bytes in flight that continue without the turn, or null. Requires the turn.
    void set_arriving(std::shared_ptr<Arriving> arriving) noexcept;

    /// Releases unused memory, if no operation is in progress. With `wait`, first waits for the device if anything
    /// depends on it. Returns the bytes released.
    std::size_t release_unused(bool wait) noexcept;

    /// Retries the release of pages that are no memory any more, if no operation is in progress.
    void release_leftovers() noexcept;

    /// All memory of the arena; its extents and live blocks, also those that graphs keep, are sorted by address.
    struct Contents {
        std::vector<Extent> extents;
        std::vector<LiveBlock> blocks;
    };
    /// For pages that other processes are about to read. Until a pause has released them, no block is allocated in
    /// them and no exchange hands them over; new blocks come from other pages. Requires the turn. Throws Misuse if any
    /// memory is paused. The contents say what had been sealed before.
    Contents seal();
    /// Takes a `seal` back, except for what had been sealed before. Requires the turn.
    void unseal(const Contents& contents) noexcept;

    /// Returns whether this process is a forked child of the one that made the arena. The owner must then leave the
    /// arena alone, because its memory and files belong to the parent.
    [[nodiscard]] bool forked() const noexcept { return fork_check_.forked(); }

    /// Waits for the device and releases everything. Later calls throw Misuse, except those made by destructors. A lost
    /// device is not a failure. Throws the error of the first failing driver call after trying everything; the next
    /// call retries what is left. `closing` is called once no block can be allocated any more, before the addresses are
    /// unreserved. If the device cannot be waited for, `closing` is not called and the arena stays open.
    void close(FunctionRef<void()> closing = [] {});
    [[nodiscard]] bool closed() const noexcept { return closed_.load(); }

    std::uint64_t arena_serial = 0; // of a saver's table of tags

    /// Set once the tag is dropped or about to be. Used in error messages about a closed arena.
    std::atomic<bool> dropped{false};
    /// Returns what happened to a closed arena, for error messages: it was closed, or its tag was dropped.
    [[nodiscard]] const char* end() const noexcept { return dropped.load() ? "dropped" : "closed"; }

private:
    friend class ElasticRange;
    class Growth; // the right to add pages

    /// Pages that are no memory any more, but that the driver would not take back, or that work may still use.
    struct Leftover {
        Extent extent;
        bool owns_addresses;                     // otherwise they belong to an elastic range
        std::shared_ptr<const WorkMark> until{}; // work that an elastic release waits for; nothing failed
    };
    struct Kept; // a block that was deallocated in a capture: ends with the graph
    /// Frees such a block, as if deallocated now: the graph is gone.
    void let_go(Address block) noexcept;

    // --- the steps of `close` ---

    /// Waits for the device; after that, no block can be allocated or freed. Throws if it cannot be waited for; then
    /// the arena stays open.
    void stop_serving();
    Status end_slots() noexcept;
    Status drop_all() noexcept;

    // --- pages: none of these takes the mutex ---

    Status create(Extent& extent) noexcept;
    /// Maps pages at an extent, and allows access. After a failure, the extent may be mapped.
    Status map(Extent& extent, PageHandle pages) noexcept;
    Status unmap(Extent& extent) noexcept;
    Status release(Extent& extent) noexcept;
    /// Unmaps and releases. If that fails, the extent keeps what is left.
    Status drop(Extent& extent) noexcept;
    /// Transfers ownership of the pages of `from`, an extent of `other`, to `to`, which has them mapped too.
    void take_over(Extent& to, ArenaCore& other, Extent& from) noexcept;
    void note_physical(std::size_t more) noexcept;
    /// Creates pages for all extents that have none, stopping at the first failure. Returns out_of_memory also if less
    /// than the margin would be left free. `beside`: bytes that will be created in addition.
    Status create_all(std::vector<Extent>& extents, std::size_t beside = 0) noexcept;
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t needed) const;
    /// Notes that copies of a failed operation may still be in flight. `settle` waits for them; nothing is released
    /// before, and no block becomes free before the device has been waited for.
    void unsettle() noexcept { unsettled_.store(true); }
    Status settle() noexcept;

    // --- growth ---

    /// Returns a block of `size` bytes (a multiple of 256) from active memory, growing the arena if necessary. Throws
    /// OutOfMemory only after all unused memory of the arena has been reclaimed, waiting for the device if necessary;
    /// or after other threads have `most_reclaims` times taken the memory that it reclaimed.
    Address take_block(std::size_t size, const Request& request);
    static constexpr int most_reclaims = 64;
    static constexpr int gentle_reclaims = 8; // the first of them keep the arena's pages
    /// Returns a block of active memory, or 0.
    Address serve(Frees::Lock& lock, std::size_t size, const Request& request);
    /// Adds active memory for a block of `bytes`. If it had to wait while another thread did that, adds none.
    void grow(std::size_t bytes, std::size_t alignment);
    /// Takes addresses, reserving another segment if necessary; if none can be reserved for `bytes`, takes `least`.
    /// Requires the Growth.
    Range take_addresses(std::size_t bytes, std::size_t alignment, std::size_t least);
    /// Creates and maps pages at sorted `ranges`, which become active memory: free, or `elastic`: live blocks with
    /// handles of their own, whose addresses are an elastic range's. Requires the Growth. Strong exception guarantee,
    /// except that pages which cannot be released become leftovers; unless elastic, these then own their addresses, and
    /// the rest of the addresses is freed.
    Status add_memory(const std::vector<Range>& ranges, bool elastic);
    /// Adds mapped pages to active memory. Strong exception guarantee: may throw std::bad_alloc.
    void take_in(const std::vector<Range>& ranges, const std::vector<Extent>& extents, bool elastic);
    /// Throws Misuse if `more` bytes exceed `capacity`.
    void check_capacity(std::size_t capacity, std::size_t more) const;
    /// Makes all unused memory of the arena reusable and releases free extents. Waits for the device if freed memory
    /// waits for it. Returns whether anything changed. `gentle`: keeps the pages if freed memory waited, because that
    /// memory may be enough. `waits`: how many more times to wait for another thread's operation; decremented by one
    /// that did.
    bool reclaim_own(bool gentle, int& waits);
    [[nodiscard]] std::size_t check_request(const Request& request) const;
    void free_addresses(Range range) noexcept;

    // --- memories: all require the mutex ---

    [[nodiscard]] Memory* newest_active() noexcept;
    [[nodiscard]] Memory* memory_with_block(Address address) noexcept;
    /// Merges memories of the same state and slot where that is possible. Never throws: what cannot be merged for lack
    /// of host memory stays apart.
    void merge_memories() noexcept;
    /// Returns whether any part of a range is paused or being paused.
    [[nodiscard]] bool any_away(Range range) const noexcept;
    /// Makes freed blocks free whose work has completed. Returns whether there was any.
    bool collect(Frees::Lock& lock);
    void reclaim(Address block) noexcept;
    /// Makes all freed blocks of paused memory free, because no work can touch them any more.
    void free_paused() noexcept;
    /// Returns the live block at an address, and its memory. Throws Misuse if there is none.
    std::pair<Memory*, const Block*> live_block(Address address);
    void forget(const Memory& memory, std::uint64_t serial) noexcept;
    /// Keeps capacity in `attic_` for `more` extents beside those that exist.
    void reserve_attic(std::size_t more);

    // --- leftovers ---

    /// Adds pages that could not be released, or that wait for work. Capacity was reserved for every extent.
    void leave(const Extent& extent, bool owns_addresses, const Status& status,
               std::shared_ptr<const WorkMark> until = {}) noexcept;
    /// Retries the release of leftovers, and of pages kept by paused memory. Adds the bytes released to
    /// `released_bytes`. Waits for the device only if copies of a failed operation may be in flight. Requires the turn.
    Status retry_leftovers(std::size_t& released_bytes) noexcept;
    Status retry_attic(std::size_t& released_bytes) noexcept;
    struct Held {
        std::size_t bytes = 0; ///< of leftovers and of paused memory
        bool foreign = false;  ///< paused memory still has pages mapped that it has handed over
    };
    /// The caller holds the mutex.
    [[nodiscard]] Held held() const noexcept;

    // --- operations: require the turn ---

    /// Calls `act(scratch)` for the scratch memory of each slot that keeps the bytes of these memories.
    void each_scratch(const std::vector<Memory*>& memories, FunctionRef<void(DeviceScratch&)> act) const;
    /// Returns the i-th memory, or null behind the last. While the turn is held, none is removed and none comes
    /// between.
    [[nodiscard]] Memory* memory(std::size_t i) noexcept;
    /// Releases a slot's scratch memory and adds its size to `released_bytes`.
    static Status release_scratch(const std::shared_ptr<AnySlot>& slot, std::size_t& released_bytes) noexcept;
    /// Returns the parts of a paused memory that a resume leaves out: whole granules in which no block lives, if large
    /// enough to be worth it. The caller holds the mutex.
    [[nodiscard]] std::vector<Range> dead_ranges(Memory& memory);
    /// Removes paused memory without extents, and adds the slots that keep nothing afterwards to `ended`, which has
    /// capacity for one of each memory. The caller holds the mutex, and passes them to `slot_resumed` without it.
    void remove_empty(std::vector<std::shared_ptr<AnySlot>>& ended) noexcept;
    /// Drops the dead ranges of all paused memory, so that their addresses can be reused, and ends slots that keep
    /// nothing afterwards. May throw std::bad_alloc; ranges dropped until then stay dropped.
    void drop_dead();
    [[nodiscard]] const std::shared_ptr<AnySlot>& slot_of(const Memory& memory) const noexcept {
        return memory.once ? memory.once : own_;
    }
    /// Returns whether a paused memory's bytes are in this slot.
    [[nodiscard]] bool in_use(const std::shared_ptr<AnySlot>& slot) noexcept;
    /// Returns a mark for all work submitted to the device so far. It counts as completed once a fence that begins
    /// later has ended.
    [[nodiscard]] std::shared_ptr<const WorkMark> next_fence();
    /// Returns the live block that contains an address, except what graphs keep.
    [[nodiscard]] std::optional<LiveBlock> block_holding(Address address);
    class Asked; // a call about bytes of a block
    /// Returns all live blocks of these memories; none may be changed meanwhile.
    [[nodiscard]] std::vector<LiveBlock> live_blocks(const std::vector<Memory*>& memories);
    /// Returns the description of these memories that is passed to a slot. Must not outlive the arena.
    [[nodiscard]] LiveSet live_set(std::vector<Memory*> memories, const char* what);
    /// Throws the error of a failed transfer, naming the tag.
    void check_moved(const Status& status, const Attempt& attempt, std::size_t bytes) const;
    /// Notifies a slot that its restored bytes belong to the program again. Retires it unless it is the tag's own.
    void slot_resumed(const std::shared_ptr<AnySlot>& slot) noexcept;
    /// Closes a slot that is no longer needed, unless it is the tag's own.
    void retire_slot(std::shared_ptr<AnySlot> slot) noexcept;

    // --- bytes in flight: arriving.ipp ---

    [[nodiscard]] bool coming_back() noexcept;
    bool follow_arriving(StreamRef stream, const char* what);
    void cancel_arriving() noexcept;
    /// Waits for the bytes in flight, and commits them. Throws NotIdle once the deadline has passed. With `join`, does
    /// not wait for bytes that are being restored.
    void commit_arriving(const Deadline& deadline = {}, bool join = false);
    /// Commits the bytes in flight if that requires no waiting. Returns whether nothing is in flight afterwards.
    bool try_settle_arriving() noexcept;
    /// Makes memory whose restore failed paused again: waits for the device, then releases the pages.
    void give_up_failed_arrival() noexcept;
    /// As above, and waits for copies of failed operations. Throws DriverError if they cannot be waited for.
    void recover();

    // --- texts ---

    /// Throws Misuse after `close`, and in a forked child. `what()` returns a text that describes the call.
    void require_open_for(FunctionRef<std::string()> what) const {
        if (fork_check_.forked() || closed_.load()) [[unlikely]]
            refuse_closed(what());
    }
    void refuse_closed(const std::string& wanted) const;
    /// Throws the error of a failing driver call, naming the tag.
    void check_of_tag(const Status& status, const Attempt& attempt) const;
    void emit_ignored(const char* text) const noexcept;
    /// Reports what could not be given back.
    void tell_kept(const Status& status,
                   const char* what = "release a backup's storage (the next operation retries)") const noexcept;

    const AnyDriver driver_;
    const std::string tag_;
    const ArenaOptions options_;
    const std::size_t granularity_;
    const AnyPolicy policy_;
    const std::function<void(Range, std::shared_ptr<ArenaCore>)> on_segment_;
    ForkCheck fork_check_;
    Turn turn_;
    std::atomic<bool> closing_{false}; // `close` waits for the device, or has: no more blocks and pages
    std::atomic<bool> closed_{false};
    std::atomic<bool> unsettled_{false};
    std::atomic<std::size_t> capacity_;
    std::atomic<std::size_t> margin_;
    std::atomic<std::size_t> physical_bytes_{0}; // of all handles
    std::atomic<std::size_t> peak_bytes_{0};
    std::atomic<std::size_t> elastic_bytes_{0};
    std::atomic<std::uint64_t> pauses_{0};
    std::atomic<std::uint64_t> losses_{0};

    mutable std::mutex mutex_; // guards the members below
    Frees frees_{driver_};
    std::condition_variable grown_;
    bool growing_ = false;          // one thread adds pages
    std::uint64_t last_serial_ = 0; // of a block
    std::size_t extents_ = 0;       // that exist outside of the attic
    Addresses addresses_;
    std::vector<Range> owned_;
    std::vector<std::unique_ptr<Memory>> memories_;
    std::vector<Leftover> attic_;
    std::shared_ptr<AnySlot> own_;                     // the tag's slot; null after `close`
    const std::shared_ptr<DeviceScratch> own_scratch_; // for readers without a lock
    std::shared_ptr<Arriving> arriving_;               // changed with the turn held, too

    Attic spent_;      // slots
    ArenaGates gates_; // guarded by the turn
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arena_core.ipp"
#endif
