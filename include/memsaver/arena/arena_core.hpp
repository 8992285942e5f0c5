// One tag's memory on one device: grows, hands out blocks, pauses and resumes. Does not know other tags.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/gates.hpp"
#include "memsaver/arena/pages.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/spent_slots.hpp"
#include "memsaver/driver/fork_mark.hpp"
#include "memsaver/driver/neighbours.hpp"
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

#include <pthread.h>

namespace memsaver::inline v0_2 {

namespace detail {

/// Like a mutex, but held across waits and copies, so nothing that must be quick ever asks for it.
class Turn {
public:
    /// Holds the turn until it dies. Move-only.
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

    /// The turn if it is to be had at once.
    std::optional<Hold> try_take();

    /// Waits for the operation of another thread that has the turn now, if there is one; answers whether there was.
    bool wait_for_others();

private:
    std::mutex mutex_;
    std::condition_variable freed_;
    bool taken_ = false;
    pthread_t owner_{};       ///< while it is taken
    std::uint64_t ended_ = 0; ///< operations
};

/// Three books are kept in step: the pages (which addresses have memory), the heaps (which bytes are whose), and the
/// slots (what is kept of paused bytes).
///
/// - *Open* addresses serve allocations; *shut* ones do not, because they are paused or an operation has them in hand.
///   A pause shuts everything that is open, and growth then adds open memory beside it. When an operation ends, just
///   what is paused stays shut.
/// - An operation takes its extents out of `pages_.active`. Until it puts them back they are *in hand*: `active` and
///   `held` have room for each of them, so that ending an operation needs no host memory.
/// - Deallocations in shut memory during an operation are noted and take effect when it ends.
///
/// Locks, in the order in which they are taken: the turn (one operation at a time; held across waits and copies), then
/// `growing_` (one thread adds extents, or a pause takes them all; held across driver calls that do not wait; a close
/// waits), then the pages' mutex or the heaps' (bookkeeping).
class ArenaCore final : public ArenaBase, public Neighbour {
public:
    class Pause; // the operations, in steps; run_steps.hpp runs those of many arenas
    class Resume;
    class Trim;
    class SaveAhead;
    class Arriving; // bytes that are on their way while no operation has the turn: arriving.hpp

    /// `on_segment` is told of every range of addresses before blocks come from it. Throws Misuse for impossible
    /// options, or what a failing driver call stands for.
    ArenaCore(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
              std::function<void(Range)> on_segment = {});
    MEMSAVER_INLINE ~ArenaCore() override;

    /// Takes what `options.reserve` asks for; called once whoever owns the arena has it in hand, and again after a
    /// failure: once it was there, does nothing. Throws OutOfMemory if it does not fit.
    void reserve();

    MEMSAVER_INLINE void* allocate(const Request& request) override;
    MEMSAVER_INLINE void deallocate(void* pointer, const FreeOrder& order) override;
    MEMSAVER_INLINE void deallocate_quietly(void* pointer, const FreeOrder& order) noexcept override;
    MEMSAVER_INLINE void let_go(std::uint64_t graph) noexcept override;
    [[nodiscard]] MEMSAVER_INLINE std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) override;
    [[nodiscard]] MEMSAVER_INLINE std::unique_ptr<ElasticRange> reserve_elastic(std::size_t bytes,
                                                                                std::size_t step) override;
    MEMSAVER_INLINE void zero(void* pointer, std::size_t bytes, StreamRef stream) override;
    [[nodiscard]] MEMSAVER_INLINE BackupView backup_view(const void* pointer, std::size_t bytes) override;
    MEMSAVER_INLINE void write_backup(void* pointer, const void* from, std::size_t bytes) override;
    MEMSAVER_INLINE void load(void* pointer, const FileRange& from, AnyPolicy (*reader)() = nullptr) override;
    MEMSAVER_INLINE void invalidate(const void* pointer, std::size_t bytes) override;
    [[nodiscard]] MEMSAVER_INLINE std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes) override;
    MEMSAVER_INLINE void require_brought() override;

    MEMSAVER_INLINE void require_open(const char* what) const override;
    MEMSAVER_INLINE void require_resumed(const char* what, StreamRef stream) override;
    [[nodiscard]] MEMSAVER_INLINE bool owns_stream(StreamRef stream) const override;
    [[nodiscard]] MEMSAVER_INLINE bool contains(const void* pointer) const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE bool holds(const void* pointer, std::size_t bytes) override;
    [[nodiscard]] MEMSAVER_INLINE bool here(const void* pointer, std::size_t bytes) override;
    [[nodiscard]] MEMSAVER_INLINE ArenaUsage usage() override;

    [[nodiscard]] const std::string& tag() const noexcept override { return pages_.tag(); }
    [[nodiscard]] int device() const noexcept override { return driver().device(); }
    [[nodiscard]] const AnyDriver& driver() const noexcept { return pages_.driver(); }
    [[nodiscard]] const AnyPolicy& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return pages_.options(); }
    void set_capacity(std::size_t bytes) noexcept { pages_.set_capacity(bytes); }
    void set_margin(std::size_t bytes) noexcept { pages_.set_margin(bytes); }
    [[nodiscard]] std::size_t margin() const noexcept { return pages_.margin(); }

    /// The right to run one operation, once what is on its way has arrived (or could not). Throws NotIdle once the
    /// deadline has passed; Misuse, beginning with `what`, after `close`. `join`: bytes that are being brought back may
    /// go on meanwhile.
    Turn::Hold take_turn(const Deadline& deadline = {}, const char* what = "use", bool join = false);
    /// The same if it is to be had at once.
    std::optional<Turn::Hold> try_turn();
    /// Waits for the operation that another thread has under way here, and for what is on its way, if there is any;
    /// answers whether there was.
    bool wait_for_others() noexcept override { return turn_.wait_for_others() || finish_arriving(); }

    /// What is on its way, if anything is; also what could not be brought, until the next pause or resume.
    [[nodiscard]] std::shared_ptr<Arriving> arriving() noexcept;
    /// Waits until it has arrived, if anything is on its way, and ends it; answers whether anything was. Takes the
    /// turn. What failed is told to whoever waits for the arrival.
    bool finish_arriving() noexcept;
    /// With the turn held: this goes on without it.
    void set_arriving(std::shared_ptr<Arriving> arriving) noexcept;

    /// What the arenas of other savers on the machine may have; see Neighbours.
    MEMSAVER_INLINE std::size_t give_room(bool wait) noexcept override;

    // --- looks that cost next to nothing, for those who ask many arenas ---

    /// Physical bytes of handles that live.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept {
        return pages_.physical_bytes() + (own_scratch_ ? own_scratch_->held_bytes() : 0);
    }
    /// A pause or a trim would find nothing to do.
    [[nodiscard]] bool anything_waits() { return heaps_.anything_waits() || pages_.anything_waits(); }
    [[nodiscard]] bool idle_for_pause() const noexcept { return mapped_bytes() == 0 && spent_.empty(); }
    /// A resume would find nothing to do.
    [[nodiscard]] bool nothing_paused() noexcept;
    /// How often pages of it have gone in a pause.
    [[nodiscard]] std::uint64_t pauses() const noexcept { return pauses_.load(); }
    /// Nothing is away, nor going away; what could not be given back so far does not count.
    [[nodiscard]] bool all_there() noexcept;
    /// All that was away is mapped, and its bytes are being brought.
    [[nodiscard]] bool on_its_way() noexcept;
    /// Some pages are here, or on their way to be given back.
    [[nodiscard]] bool any_there() noexcept;
    /// Physical bytes that were released and go once work has passed.
    [[nodiscard]] std::size_t waiting_bytes() noexcept { return pages_.waiting_bytes(); }

    /// Whether this process is a child of the one that made the arena: whoever owns it must then let it be, for its
    /// memory and files are the parent's.
    [[nodiscard]] bool forked() const noexcept { return fork_mark_.forked(); }

    /// Physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume();
    /// Takes ahead of time what saving the live blocks would take. Any thread; allocations go on meanwhile.
    void prepare();
    /// The program changed bytes that the policy may have saved before: save them again at the next pause.
    void invalidate();
    /// What is kept of memory that is paused now goes: a resume brings it back as after a pause that discards.
    /// `dropping()` is called before anything is dropped, with the turn: nothing comes back meanwhile.
    void forget_backup(FunctionRef<void()> dropping);
    /// Throws Misuse for a policy without such a choice. Waits for an operation that is under way.
    void set_retain(bool yes);
    /// Gives everything back, waiting for the device first. Later calls throw Misuse, but for those of destructors. A
    /// lost device is no failure here. Throws what the first failing driver call stands for, after everything has been
    /// tried; what is left is tried again by the next call. `closing` is called once no block can come any more, before
    /// the addresses go; not where the device cannot be waited for, and the arena stays open.
    void close(FunctionRef<void()> closing = [] {});
    [[nodiscard]] bool closed() const noexcept { return closed_.load(); }

private:
    class Reserved; // addresses that are taken from the beginning, and these two on them: arena_core.ipp
    class Growing;  // a block that grows
    class ElasticPages;

    // --- growth ---

    /// A block of `size` bytes (a multiple of 256) from open memory, which grows as it must. Throws OutOfMemory only
    /// once everything in the arena that nobody holds has been taken, waiting for the device if that needs it; or when
    /// other threads have taken `most_reclaims` times what it made free.
    Address take_block(std::size_t size, const Request& request);
    static constexpr int most_reclaims = 64;
    static constexpr int gentle_reclaims = 8; // so many of them keep the arena's pages
    /// Takes open memory for a block of `bytes`, unless somebody has grown the arena since `seen`.
    void grow(std::uint64_t seen, std::size_t bytes, std::size_t alignment);
    /// Throws Misuse if `more` bytes are more than the capacity that the program set leaves.
    void check_capacity(std::size_t more) const;
    /// Makes everything in the arena that nobody holds reusable, and gives whole extents of it back. Waits for the
    /// device if anything waits for it. Whether anything changed.
    /// `gentle`: keeps the pages if anything waited, for that may be enough. `waits`: so many more times for an
    /// operation that another thread has under way.
    bool reclaim_own(bool gentle, int& waits);
    [[nodiscard]] std::size_t check_request(const Request& request) const;

    // --- operations ---

    /// Physical bytes that could not be given back so far.
    [[nodiscard]] std::size_t held_bytes();
    /// `act(scratch)` for those of the slots that keep what is paused. With the turn or the pages' mutex held.
    template <class Act>
    void each_paused_scratch(const Act& act) const {
        const auto& paused = pages_.paused;
        for (std::size_t i = 0; i < paused.size(); ++i) {
            const bool known = std::any_of(paused.begin(), paused.begin() + static_cast<std::ptrdiff_t>(i),
                                           [&](const auto& batch) { return batch.slot == paused[i].slot; });
            if (const auto scratch = known ? nullptr : paused[i].slot->scratch()) act(*scratch);
        }
    }
    /// Gives back a slot's scratch, and adds what has gone to `released_bytes`. With the turn held.
    static Status give_scratch(const std::shared_ptr<AnySlot>& slot, std::size_t& released_bytes) noexcept;
    /// Tries again to give back what is held, and adds what has gone to `released_bytes`. With the turn held.
    Status retry_held(std::size_t& released_bytes);
    /// The parts of paused ranges that a resume leaves out: whole granules in which no block lives.
    [[nodiscard]] std::vector<Range> dead_ranges(const std::vector<Range>& paused);
    [[nodiscard]] std::vector<Range> ranges_to_resume();
    /// Gives back what has been released, as far as the work that it waited for has passed.
    Status collect_released(std::size_t& released_bytes) noexcept;
    /// Work that all the device has been given so far, as a mark that passes once somebody has waited for the device.
    [[nodiscard]] std::shared_ptr<const WorkMark> next_fence();
    /// Whether bytes are being brought back, or could not be.
    [[nodiscard]] bool coming_back() noexcept;
    /// Has the stream wait for bytes that are being brought back; answers whether any are. See require_resumed.
    bool follow_arriving(StreamRef stream, const char* what);
    void cancel_arriving() noexcept;
    // What is on its way, with the turn held.
    /// Waits for it, and ends it. Throws NotIdle once the deadline has passed. `join`: but not for bytes that are being
    /// brought back.
    void settle_arriving(const Deadline& deadline = {}, bool join = false);
    /// The same if that is to be had at once; answers whether nothing is on its way now.
    bool try_settle_arriving() noexcept;
    /// What could not be brought is paused again: its pages go once the device has passed them.
    void give_up_failed_arrival() noexcept;
    /// Paused ranges in which no block lives are dropped, and slots that are left with nothing. With the turn held. May
    /// throw bad_alloc; what has been dropped by then was nobody's.
    void drop_dead(const std::vector<Range>& dead);
    /// Those that keep something of what is paused; and ends those of them that do not any more. Likewise.
    [[nodiscard]] std::vector<std::shared_ptr<AnySlot>> slots_in_use();
    void end_slots(const std::vector<std::shared_ptr<AnySlot>>& slots) noexcept;
    /// The same of all that is paused, so that its addresses serve again; not where pages still are that could not be
    /// unmapped.
    void drop_all_dead();
    void open_all() noexcept;
    /// Ends an operation. Blocks deallocated in paused memory become free: no work can touch them. With `shut_stays`,
    /// exactly what was shut during the operation is paused now.
    void end_operation(bool shut_stays) noexcept;
    /// Whether any of a range, in which blocks live, is paused or being paused.
    [[nodiscard]] bool any_away(Range range);

    // --- slots: with the turn held; none dies or gives anything back under a lock that an allocation may want ---

    /// The live block that holds all of a range. With the turn held. Throws what `refusal(why)` answers.
    template <class Refusal>
    [[nodiscard]] LiveBlock block_of(Range range, Refusal&& refusal) {
        if (range.bytes == 0) throw refusal("there are no bytes in it");
        if (!heaps_.contains(range.address)) throw refusal("it is no address of this tag");
        const std::optional<LiveBlock> block = heaps_.block_holding(range.address);
        if (!block) throw refusal("no live block holds this address");
        if (range.bytes > block->bytes - (range.address - block->address))
            throw refusal("it reaches past the end of its block");
        return *block;
    }
    /// What a slot is shown of these ranges. The arena outlives it.
    [[nodiscard]] LiveSet live_set(std::vector<Range> ranges, const char* what);
    /// Throws what the end of a transfer stands for, with the tag in the text.
    void check_moved(const Status& status, const Attempt& attempt, std::size_t bytes) const;
    /// The bytes that a slot brought back are the program's again.
    void slot_resumed(const std::shared_ptr<AnySlot>& slot) noexcept;
    /// A slot that is not the tag's own is needed no more.
    void retire_slot(std::shared_ptr<AnySlot> slot) noexcept;
    /// Closes all of them. Answers the first failure; what is left is tried again by the next call. A lost device is
    /// none.
    Status close_slots() noexcept;

    // --- texts ---

    /// Throws Misuse after `close`, and in a forked process. `what()` answers a text of what was wanted.
    template <class What>
    void require_open_for(What&& what) const {
        if (!fork_mark_.forked() && !closed_.load()) return;
        const std::string wanted = what();
        fork_mark_.require_parent(wanted.c_str());
        throw Misuse{wanted + ": tag \"" + tag() + "\" has been " + end()};
    }
    /// Throws what a failing driver call stands for, with the tag in the text.
    void check_of_tag(const Status& status, const Attempt& attempt) const;
    [[nodiscard]] Event event(EventKind kind, std::string text, std::size_t done = 0, std::size_t total = 0) const;
    void tell_ignored(const char* text) const noexcept;
    void tell_kept(const Status& status) const noexcept;

    AnyPolicy policy_;
    Turn turn_;
    ForkMark fork_mark_;
    std::atomic<bool> closed_{false};
    ArenaPages pages_;
    Heaps heaps_;
    OwnedRanges owned_ranges_;
    std::mutex growing_;
    std::atomic<std::uint64_t> growths_{0};
    std::atomic<bool> reserved_{false};
    std::atomic<std::uint64_t> pauses_{0};
    bool pausing_ = false;         // guarded by the pages' mutex: a pause has begun and not ended
    bool unfinished_ = false;      // under the turn: the last operation left memory shut that is not paused
    std::shared_ptr<AnySlot> own_; // the tag's; changed under the heaps' locks only, and at the end
    const std::shared_ptr<DeviceScratch> own_scratch_ = own_->scratch(); // for who asks without a lock
    std::shared_ptr<Arriving> arriving_;                                 // changed under the turn and the pages' mutex
    SpentSlots spent_;
    ArenaGates gates_; // under the turn
};

/// Begun by construction, then: wait for the device, `idle`, `enqueue`, `wait`, `release`, `commit`. What is dropped
/// before `release` was called has changed nothing. From the beginning on the arena's memory serves no allocation (new
/// ones come from fresh extents), and blocks that are given up stay as they are until the end. Move-only.
class ArenaCore::Pause {
public:
    /// `once`: the policy for this pause, if not the tag's own. Throws OutOfHostMemory; then nothing changed.
    Pause(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once);
    Pause(Pause&& other) noexcept;
    Pause& operator=(Pause&&) = delete;
    ~Pause();

    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }
    /// Nothing to pause, and nothing to tell: it has not even given back what an earlier call had to hold.
    [[nodiscard]] bool empty() const noexcept { return !takes() && failure_.ok() && row_.released_bytes == 0; }
    /// Whether it takes memory away, so that somebody's work has to be waited for.
    [[nodiscard]] bool takes() const noexcept { return !ranges_.empty() || released_; }

    /// The device's work that was submitted before the pause has passed.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept;

    /// Starts saving. Throws what the policy throws.
    void enqueue();
    [[nodiscard]] Ticket& ticket() noexcept { return ticket_; }

    /// What it takes away, until `release`.
    [[nodiscard]] const std::vector<Extent>& extents() const noexcept { return extents_; }
    /// What `commit` gives back beside them.
    [[nodiscard]] std::size_t scratch_bytes() const noexcept {
        return core_->own_scratch_ ? core_->own_scratch_->held_bytes() : 0;
    }
    /// Room for `hand`. Throws bad_alloc.
    void plan_heirs();
    /// `release` leaves these pages to an extent of another arena, in its books, that has them mapped too.
    void hand(std::size_t extent, Extent& heir, ArenaPages& books) noexcept { heirs_[extent] = {&heir, &books}; }
    /// Whether something is kept of the bytes; else a ticket with bytes writes poison over what is handed on.
    [[nodiscard]] bool keeps_bytes() const noexcept { return keeps_; }

    /// Waits until every byte has been saved. Throws if one could not be.
    void wait();

    /// Gives the pages back, or hands them on. What fails is kept, and reported by `commit`.
    void release() noexcept;
    /// Gives pages back as they are saved, instead of `wait` and `release`: for tickets all of whose work is on its
    /// streams. Throws if bytes could not be saved; then what has gone is saved and paused, the rest is active.
    void release_as_saved();
    /// After a failure: gives back just those extents that have been written over. Nothing is handed on, and the rest
    /// stays active. `saved`: what they held is kept.
    void release_only(const std::vector<bool>& extents, bool saved) noexcept;

    /// Ends the operation. The first failure of `release`, if any, is in `status`.
    TagReport commit(Status& status);

private:
    /// Pages that change hands.
    struct Heir {
        Extent* extent = nullptr;
        ArenaPages* books = nullptr;
    };

    void note(const Status& status) noexcept;
    /// `last`: it is gone whatever the driver says, and what fails is held.
    void release(Extent& extent, Heir heir, bool last) noexcept;

    TagReport finish() noexcept;

    Turn::Hold turn_;
    ArenaCore* core_;
    bool once_;
    bool enqueued_ = false;
    bool in_part_ = false;  // what is away was saved, but not all was
    bool released_ = false; // elastic memory was, and waits for work
    bool keeps_;            // something is kept of the bytes
    std::shared_ptr<AnySlot> slot_;
    std::uint64_t fence_;
    std::vector<Range> ranges_;      // of all extents concerned, sorted
    std::vector<Extent> extents_;    // taken from the arena, active
    std::vector<Heir> heirs_;        // of each extent, if any has one
    std::size_t scratch_before_ = 0; // held when it began
    std::vector<Extent> left_;       // those that could not be unmapped
    std::vector<Range> paused_;      // those that were
    Ticket ticket_;
    Span saving_;
    TagReport row_;
    Status failure_;
};

/// Begun by construction, then: `create`, `map`, `enqueue`, `wait`, `commit`. What is dropped before `commit` has
/// changed nothing: the memory is as paused as before, and its backup whole. Paused memory in which no block lives is
/// not brought back, and neighbours come back behind one handle. Move-only.
class ArenaCore::Resume {
public:
    /// Throws OutOfHostMemory, or DriverError if pages that could not be given back earlier are in the way; then
    /// nothing changed.
    /// `once`: what the bytes are this time, if not what was kept.
    Resume(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once = {});
    Resume(Resume&& other) noexcept;
    Resume& operator=(Resume&&) = delete;
    ~Resume();

    [[nodiscard]] const std::string& tag() const noexcept { return core_->tag(); } // not after `commit`
    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    /// Nothing to bring back, and nothing to tell: it has not even given back what an earlier call had to hold.
    [[nodiscard]] bool empty() const noexcept { return kept_.empty() && row_.released_bytes == 0; }
    /// Physical bytes that are still to be taken.
    [[nodiscard]] std::size_t needed_bytes() const noexcept;
    /// Of these, what the slots take to bring the bytes.
    [[nodiscard]] std::size_t needed_scratch() const noexcept;
    /// Whether the bytes come from where they were kept.
    [[nodiscard]] bool brings_bytes() const noexcept { return !once_ && core_->policy_.keeps_bytes(); }

    /// What comes back, sorted.
    [[nodiscard]] const std::vector<Range>& ranges() const noexcept { return kept_; }
    /// That these, which are all of `ranges()`, are brought back as one extent each. At the beginning. May throw; then
    /// nothing changed.
    void plan(const std::vector<Range>& ranges) { core_->pages_.plan_again(extents_, ranges); }
    [[nodiscard]] std::vector<Extent>& extents() noexcept { return extents_; }
    [[nodiscard]] ArenaPages& books() noexcept { return core_->pages_; }
    /// Maps another arena's pages, which that one will hand on. Throws what a failing driver call stands for.
    void map_of(Extent& extent, const Extent& owner);

    /// Whether `create` is to take nothing, for now.
    void put_off(bool yes) noexcept { put_off_ = yes; }
    /// Takes all physical memory that the resume needs, or none: then throws OutOfMemory, and may be called again.
    void create();

    /// Gives back what `create` took.
    void uncreate() noexcept;

    /// Brings the pages in sight. Throws what a failing driver call stands for.
    void map();

    /// Which bytes are wanted first: see LiveSet. Before `enqueue`.
    void bring_first(std::vector<Range> ranges) noexcept { first_ = std::move(ranges); }
    /// Gives the turn up and goes on without it, and the program may use what it brings. From here on `wait` may be
    /// called as ever, and `commit` and the destructor by who has the turn.
    void go_on_alone() noexcept;
    /// Has the arena's gates wait for what `enqueue` has begun: in two steps, for the first may wait for kernels, and
    /// with the second streams begin to wait for the host. Both throw what a failing call stands for.
    void record_gates();
    void close_gates();

    /// Starts bringing the bytes back, of what is mapped and has not been begun. Throws what a policy throws.
    /// `before_write`: see LiveSet.
    void enqueue(const std::function<Status(Range)>& before_write = {});
    [[nodiscard]] std::vector<Ticket>& tickets() noexcept { return tickets_; }

    /// Waits until every byte is back. Throws if one could not be brought.
    void wait();

    /// The memory is the program's again.
    TagReport commit() noexcept;

private:
    /// Whether pages that could not be unmapped lie at paused addresses.
    [[nodiscard]] bool in_the_way() const;

    void begin();

    Turn::Hold turn_;
    ArenaCore* core_;
    std::shared_ptr<AnySlot> once_;
    std::vector<Range> kept_;     // what comes back, sorted
    std::vector<Extent> extents_; // for it
    bool put_off_ = false;
    bool alone_ = false;       // without the turn
    bool enqueued_ = false;    // bytes may be on their way, tickets or not: what failed half way may not have waited
    std::vector<Range> first_; // bytes that are wanted first
    std::vector<Range> begun_; // what `enqueue` has begun
    std::vector<Ticket> tickets_;
    std::vector<std::vector<Range>> coming_;       // what each of them brings
    std::unique_ptr<ArenaGates::Opening> opening_; // ends before the tickets do
    std::size_t waited_ = 0;                       // for so many of them
    std::size_t scratch_bytes_ = 0;                // taken and not reported yet
    Span restoring_;
    TagReport row_;
};

/// Begun by construction, then: wait for the device, `idle`, `release`, `commit`. Move-only.
class ArenaCore::Trim {
public:
    Trim(ArenaCore& core, Turn::Hold turn);
    /// Within a turn that the caller holds.
    explicit Trim(ArenaCore& core);
    Trim(Trim&&) noexcept = default;
    Trim& operator=(Trim&&) = delete;

    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return row_.tag; }
    [[nodiscard]] static constexpr bool empty() noexcept { return false; }
    [[nodiscard]] static constexpr bool takes() noexcept { return true; } // freed blocks may be waiting for the device

    /// The device's work that was submitted before the trim has passed, so blocks freed before it are free.
    void idle(std::chrono::nanoseconds waited, bool whole_device) noexcept;

    /// Gives back what is free as a whole. What fails stays, and is reported by `commit`.
    void release() noexcept;

    /// Ends the trim. The first failure of `release`, if any, is in `status`.
    TagReport commit(Status& status) noexcept;

private:
    void note(const Status& status) noexcept;

    /// Gone, active again or held: whatever fails, it is in the books.
    void give_back(Extent& extent) noexcept;
    bool open_again(Range range) noexcept;

    std::vector<Extent> take_unused();

    /// No host memory for it: then it stays, which is no failure of a trim.
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

/// Gives back what nobody uses, within a turn that the caller holds. With `wait`, waits for the device first if
/// anything waits for it. Answers how many bytes; what fails is tried again by the next call.
std::size_t trim_now(ArenaCore& core, bool wait = false);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arena_core.ipp"
#endif
