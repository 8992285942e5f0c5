// The bookkeeping of residency: uses of each tag, waiting threads, and tags that may be evicted. Does not pause or
// resume, and knows nothing about policies.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/usage.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The residency record of one tag, on all of its devices. Except for the name and `serial`, guarded by the mutex of
/// its Residents.
struct Resident {
    using Clock = std::chrono::steady_clock;

    std::string tag;
    std::uint64_t serial = 0; ///< increases in the order in which tags were made
    bool evictable = false;   ///< set by the program
    bool used = false;        ///< was named in a `use`
    int priority = 0;
    Clock::time_point last_use{};    ///< when a use last began or ended; the epoch: never
    std::vector<ArenaCore*> cores{}; ///< on all devices
    std::size_t users = 0;
    std::size_t pausers = 0;      ///< threads that wait for its uses to end in order to pause it
    std::thread::id claimed_by{}; ///< the thread that has claimed it to pause or drop it
    std::uint64_t told = 0;       ///< the part of `losses()` that was reported to a use that has since ended
    std::uint64_t former = 0;     ///< losses of arenas that it no longer has
    std::vector<std::shared_ptr<const WorkMark>> marks{}; ///< work marked by uses, for which a pause must wait

    [[nodiscard]] bool may_be_evicted() const noexcept { return evictable || used; }
    /// Returns whether it was dropped, or is about to be.
    [[nodiscard]] bool gone() const noexcept {
        return all_in(cores, [](const ArenaCore* core) { return core->dropped.load(); });
    }
    /// Returns how often bytes of its arenas were given up.
    [[nodiscard]] std::uint64_t losses() const noexcept {
        std::uint64_t sum = former;
        for (const ArenaCore* const core : cores) sum += core->losses();
        return sum;
    }
};
using ResidentList = std::vector<std::shared_ptr<Resident>>;

class Residents;

/// The record behind a living Use. Created and ended by Residents.
class UseRecord {
public:
    UseRecord(const UseRecord&) = delete;
    UseRecord& operator=(const UseRecord&) = delete;
    ~UseRecord() = default;

    /// Returns the tags whose bytes had been lost when the use began.
    [[nodiscard]] std::vector<std::string> lost() const;

private:
    friend class Residents;
    /// Takes all host memory that the use will need. May throw std::bad_alloc.
    explicit UseRecord(const ResidentList& tags);

    struct Of {
        std::shared_ptr<Resident> resident;
        std::uint64_t losses = 0;
        bool lost = false;
    };
    std::vector<Of> of_;
    ThreadMark holder_;           // the thread that made or moved it last
    UseRecord* before_ = nullptr; // links of the list of living uses
};

/// Thread-safe. Its mutex is held only briefly and taken before the arenas' own; the only driver calls made under it
/// query events and streams, or close them.
///
/// A use that must wait joins one queue, served first come, first served. Uses whose tags are all resident overtake it,
/// except those of tags that it wants to be given up, which wait behind it. A thread that holds a use goes first:
/// others may wait for that use. A thread that waits for uses to end holds nothing that the users' threads wait for,
/// except uses of its own.
class Residents {
public:
    Residents() = default;
    Residents(const Residents&) = delete;
    Residents& operator=(const Residents&) = delete;
    ~Residents() = default;

    // --- tags ---

    void add(Resident& tag, ArenaCore& core);
    void remove(Resident& tag, const ArenaCore& core) noexcept;
    void set_evictable(const ResidentList& tags, bool yes);
    void set_priority(const ResidentList& tags, int priority);
    /// Sets whether an arena is dropped, or about to be; once all of a tag are, no use of it begins.
    void set_dropped(ArenaCore& core, bool yes) noexcept;
    /// Returns whether any of these tags was dropped.
    [[nodiscard]] bool any_gone(const ResidentList& tags) noexcept;
    void leave_out_gone(ResidentList& tags) noexcept;
    void fill(const Resident& tag, ArenaUsage& row) noexcept;
    [[nodiscard]] Holder holder_of(const Resident& tag);
    /// Returns whether any tag was ever used or made evictable; otherwise residency is not mentioned in errors.
    [[nodiscard]] bool in_play() const noexcept { return in_play_.load(std::memory_order_relaxed); }
    /// Closes: waiting threads and new uses throw Misuse.
    void close() noexcept;

    // --- uses ---

    /// Returns a use if all tags are resident (or also arriving, if not `await_bytes`) and nothing must be waited for;
    /// otherwise null. Inside a `capture` of this thread the queue is ignored.
    [[nodiscard]] std::unique_ptr<UseRecord> try_use(const ResidentList& tags, bool await_bytes, bool capture);
    /// Ends a use. Null is a no-op.
    void end(std::unique_ptr<UseRecord> use) noexcept;
    /// This thread holds the use from now on.
    void take_over(UseRecord& use) noexcept;
    /// Makes pauses of the use's tags wait for this mark as well.
    void add_mark(UseRecord& use, const std::shared_ptr<const WorkMark>& mark);
    /// Returns the drivers of the use's tags.
    [[nodiscard]] std::vector<AnyDriver> drivers_of(const UseRecord& use);
    /// Returns whether this thread holds a use or is already waiting for one: then it must not queue.
    [[nodiscard]] bool holds_any();

    /// A waiting use; it is in the queue from construction to destruction.
    class Waiter {
    public:
        Waiter(Residents& residents, const ResidentList& tags, bool await_bytes);
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        ~Waiter();

        [[nodiscard]] bool holds_any() const noexcept { return holds_; }
        /// Waits until the tags are all resident, and returns the use; or until it is this waiter's turn to move them,
        /// and returns null: then `stop_moving` or `settle` must follow. Throws NotIdle after either deadline; while
        /// other threads are pausing one of the tags, only `rest` applies. Throws Misuse if a tag was dropped or the
        /// saver closed.
        [[nodiscard]] std::unique_ptr<UseRecord> await(const Deadline& room, const Deadline& rest);
        /// Returns whether NotIdle was thrown because of other threads' pauses.
        [[nodiscard]] bool blocked() const noexcept { return blocked_; }
        /// Ends the move without a use. Wakes all waiters.
        void stop_moving() noexcept;
        /// Ends a move that resumed everything. Returns the use, or null if a tag was paused again.
        [[nodiscard]] std::unique_ptr<UseRecord> settle();
        /// Between two moves: waits until something may have changed since the last one began, or for a short time.
        /// Until the next call of `await` that has to wait for a pause, no use of the tags `wanted` begins on threads
        /// that hold none.
        void await_change(ResidentList wanted, const Deadline& deadline);

    private:
        friend class Residents;
        // with the lock held:
        [[nodiscard]] bool moves() const noexcept { return residents_.mover_ == this; }
        void want(ResidentList tags) noexcept;
        void end_move() noexcept;

        Residents& residents_;
        const ResidentList& tags_;
        ResidentList wanted_{}; // no use of these begins on threads that hold none
        const bool await_bytes_;
        const bool holds_;
        const pthread_t thread_ = ::pthread_self();
        bool waited_ = false;
        bool blocked_ = false;
        std::uint64_t seen_ = 0;
        std::unique_ptr<UseRecord> spare_; // the result of `settle`, allocated early so that no host memory is needed
                                           // once the tags are resident
    };

    // --- claims and evictions ---

    /// Says, for as long as it lives, that this thread evicts for an allocation or a resume. It does not queue, because
    /// uses in the queue may wait for other uses.
    class [[nodiscard]] Evicting {
    public:
        explicit Evicting(Residents& residents);
        Evicting(const Evicting&) = delete;
        Evicting& operator=(const Evicting&) = delete;
        ~Evicting();

    private:
        Residents& residents_;
    };
    /// While other threads evict or move tags, waits until there were more than `seen` evictions, or until the
    /// deadline. Returns whether there were.
    [[nodiscard]] bool await_eviction(std::size_t seen, const Deadline& deadline);

    /// Exclusive hold on unused tags, for a pause, drop or eviction: no use of them begins until it ends. Leaves out
    /// tags that this thread has already claimed.
    class [[nodiscard]] Claim {
    public:
        /// Does not wait: claims nothing if any of the tags is used or claimed. Does not wait for marked work.
        Claim(Residents& residents, const ResidentList& tags);
        /// Waits until none of the tags is in use and the work that their uses marked has completed. Throws NotIdle
        /// after the deadline. Without a deadline, throws Misuse, beginning with `what`, if this thread holds a use of
        /// a tag: it would wait forever.
        Claim(Residents& residents, ResidentList tags, const Deadline& deadline, const char* what);
        Claim(const Claim&) = delete;
        Claim& operator=(const Claim&) = delete;
        ~Claim() { end(); }

        [[nodiscard]] const ResidentList& tags() const noexcept { return tags_; }
        /// Waits for the work that the tags' uses marked. Throws NotIdle after the deadline, or the exception for a
        /// failed driver call.
        void wait_for_marks(const Deadline& deadline);
        void end() noexcept;

    private:
        explicit Claim(Residents& residents) noexcept : residents_{residents} {}

        Residents& residents_;
        ResidentList tags_;
    };

    /// A tag that may be evicted, and its memory on each of some devices.
    struct Candidate {
        std::shared_ptr<Resident> resident;
        std::vector<std::size_t> bytes;
        int priority = 0;
        Resident::Clock::time_point last_use{};
        bool idle = false; ///< not used, not claimed, and no thread waits to pause it
    };
    /// Fills in the other members of rows with a resident and bytes, leaves out tags that may not be evicted, and sorts
    /// the others in eviction order.
    void rank(std::vector<Candidate>& tags);

    void count_eviction(const Report& out) noexcept;
    void count_arrival(const Report& in) noexcept;
    [[nodiscard]] ResidencyUsage counts() noexcept;

private:
    /// What a pause needs only once there are uses. The first use links it, so that programs without uses do not.
    struct OfUses {
        void (*await_ends)(Residents&, std::unique_lock<std::mutex>&, const ResidentList&, const Deadline&,
                           const char*);
        void (*wait_for_marks)(Claim&, const Deadline&);
    };
    void link_uses() noexcept;
    std::atomic<const OfUses*> of_uses_{nullptr};

    // Called with the lock held:

    [[nodiscard]] static bool idle(const Resident& tag) noexcept {
        return tag.users == 0 && tag.pausers == 0 && tag.claimed_by == std::thread::id{};
    }
    /// Returns the first of these tags that is in use, or null.
    [[nodiscard]] static const Resident* used_among(const ResidentList& tags) noexcept;
    /// Waits until none of these tags is in use, and lets no new use of them begin meanwhile; see Claim.
    void await_ends(std::unique_lock<std::mutex>& lock, const ResidentList& tags, const Deadline& deadline,
                    const char* what);
    /// Begins the use. Needs no host memory: its tags may have been moved for it.
    [[nodiscard]] std::unique_ptr<UseRecord> grant(std::unique_ptr<UseRecord> use) noexcept;
    [[nodiscard]] static bool all_resident(const ResidentList& tags, bool await_bytes) noexcept;
    [[nodiscard]] bool blocked(const ResidentList& tags, bool holds) const noexcept;
    [[nodiscard]] bool wanted(const std::shared_ptr<Resident>& tag) const noexcept;
    /// Returns whether it is this waiter's turn to move tags.
    [[nodiscard]] bool may_move(const Waiter& me) const noexcept;
    void wait_for_change(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
    /// Returns whether this thread holds a use, of one of these tags if given.
    [[nodiscard]] bool held_here(const ResidentList* of = nullptr) const noexcept;
    /// Returns whether this thread moves one of these tags: a hook of an eviction runs on that thread.
    [[nodiscard]] bool moves_here(const ResidentList& tags) const noexcept;
    void require_open(const ResidentList& tags) const;
    void notify_all() noexcept;

    std::atomic<bool> in_play_{false};
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::uint64_t changes_ = 0;
    const Waiter* mover_ = nullptr; // moves its tags, which count as in use
    bool closed_ = false;
    std::uint32_t evicting_ = 0;  // threads that evict for allocations and resumes
    std::vector<Waiter*> queue_;  // those of threads that hold a use only stand in it
    UseRecord* living_ = nullptr; // the newest one
    ResidencyUsage counts_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/residents.ipp"
#endif
