// Who uses which tag, who waits for whom, and what may be evicted: the books of residency.
// Does not pause nor resume, and does not know what a tag's policy is.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/order.hpp"
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

namespace memsaver::inline v0_2 {

namespace detail {

/// What is known of one tag, on all of its devices. Guarded by the mutex of its Residents, but for the name.
struct Resident {
    using Clock = std::chrono::steady_clock;

    std::string tag;
    bool evictable = false; ///< the program said so
    bool used = false;      ///< was named in a `use`
    int priority = 0;
    Clock::time_point last_use{}; ///< when one began or ended; the epoch: never
    std::vector<ArenaCore*> cores{};
    std::size_t arenas = 0; ///< on all devices, those without a core too
    std::size_t users = 0;
    std::size_t pausers = 0;   ///< that wait for its users
    std::thread::id leaving{}; ///< the thread that is pausing or dropping it
    bool gone = false;         ///< dropped
    std::uint64_t losses = 0;  ///< how often its bytes were dropped
    std::uint64_t told = 0;    ///< of these, those that a use was told of that has ended since
    std::vector<std::shared_ptr<const WorkMark>> marks{}; ///< what ended or living uses said that it also waits for

    [[nodiscard]] bool may_be_evicted() const noexcept { return evictable || used; }
};
using ResidentList = std::vector<std::shared_ptr<Resident>>;

class Residents;

/// What a living Use stands for. Made and ended by Residents.
class UseRecord {
public:
    UseRecord() = default;
    UseRecord(const UseRecord&) = delete;
    UseRecord& operator=(const UseRecord&) = delete;
    ~UseRecord() = default;

    /// The thread that holds it: the one that made or moved it last.
    std::atomic<std::thread::id> thread{};
    std::vector<std::string> lost{};

private:
    friend class Residents;
    struct Of {
        std::shared_ptr<Resident> resident;
        std::uint64_t losses;
    };
    std::vector<Of> of_;
    UseRecord* before_ = nullptr; // of those that live
    UseRecord* after_ = nullptr;
};

/// Thread safe. Its mutex is held for a look only, and taken before the arenas' own; no driver call but a query is made
/// under it.
///
/// Who must wait for a use waits in one queue, first come, first served. Uses of what is there pass by, but none is
/// passed by more than `most_passing` of those that came later: then they queue as well. A thread that holds a use
/// never queues. Nobody who waits for uses to end holds anything that their threads wait for, but for uses of its own:
/// what pauses is told when that closes a circle.
class Residents {
public:
    static constexpr std::size_t most_passing = 64;

    Residents() = default;
    Residents(const Residents&) = delete;
    Residents& operator=(const Residents&) = delete;
    ~Residents() = default;

    // --- tags ---

    void add(Resident& tag, ArenaCore* core);
    void remove(Resident& tag, const ArenaCore* core) noexcept;
    void set_evictable(const ResidentList& tags, bool yes);
    void set_priority(const ResidentList& tags, int priority);
    /// Its bytes were dropped.
    void lose(Resident& tag) noexcept;
    /// Marks a tag as dropped, unless it has more than the `arenas` that are: one that was made meanwhile stays.
    void drop(Resident& tag, std::size_t arenas) noexcept;
    /// It is not dropped after all.
    void undrop(Resident& tag) noexcept;
    void fill(const Resident& tag, ArenaUsage& row) noexcept;
    [[nodiscard]] Holder holder_of(const Resident& tag);
    /// Whether anything was ever used, or made evictable: else nobody needs to hear of residency.
    [[nodiscard]] bool in_play() const noexcept { return in_play_.load(std::memory_order_relaxed); }
    /// From here on whoever waits, and every new use, is Misuse.
    void close() noexcept;

    // --- uses ---

    /// A use of what is all there, or also on its way, if nobody has to be waited for; else null. In a `capture` of
    /// this thread the queue is nothing to wait for.
    [[nodiscard]] std::unique_ptr<UseRecord> try_use(const ResidentList& tags, bool await_bytes, bool capture);
    /// Ends a use. Null does nothing.
    void end(std::unique_ptr<UseRecord> use) noexcept;
    /// The tags of a use wait for this too before they are paused.
    void add_mark(UseRecord& use, const std::shared_ptr<const WorkMark>& mark);
    /// The devices that the tags of a use live on.
    [[nodiscard]] std::vector<AnyDriver> drivers_of(const UseRecord& use);
    /// Whether this thread holds a use, or waits for one already: then it must not queue.
    [[nodiscard]] bool holds_any();

    /// A use that has to wait, in the queue from construction to the end.
    class Waiter {
    public:
        Waiter(Residents& books, const ResidentList& tags, bool await_bytes);
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        ~Waiter();

        [[nodiscard]] bool holds_any() const noexcept { return holds_; }
        /// Waits for its turn: the tags are all there (then this is the use), or it is this one's to move them (then
        /// null, and `stop_moving` or `settle` has to follow). Throws NotIdle once a deadline has passed, where others
        /// are pausing one of the tags only once `rest` has; Misuse when a tag was dropped or the saver closed.
        [[nodiscard]] std::unique_ptr<UseRecord> await(const Deadline& room, const Deadline& rest);
        /// Whether that NotIdle was for others' pauses.
        [[nodiscard]] bool blocked() const noexcept { return blocked_; }
        /// Ends the move without a use. Whoever waits looks again.
        void stop_moving() noexcept;
        /// Ends the move, which brought everything: this is the use, or null where something went away again.
        [[nodiscard]] std::unique_ptr<UseRecord> settle();
        /// Between two moves: waits until anything may have changed since the last one began, or for a while.
        void await_change(const Deadline& deadline);

    private:
        friend class Residents;

        Residents& books_;
        const ResidentList& tags_;
        const bool await_bytes_;
        const bool holds_;
        const std::thread::id thread_ = std::this_thread::get_id();
        bool moves_ = false; // and its tags are counted as in use
        bool waited_ = false;
        bool awaits_ = false;
        bool blocked_ = false;
        std::size_t passed_ = 0;
        std::uint64_t seen_ = 0;
        std::unique_ptr<UseRecord> spare_; // what `settle` answers: once the tags are here it needs no host memory
        Waiter* before_ = nullptr;
        Waiter* after_ = nullptr;
    };

    // --- what goes away ---

    /// Tags that nobody uses, and nobody begins to use before this ends: for a pause, a drop or an eviction. Tags that
    /// this thread has claimed already are left to the claim that has them. Move-only.
    class [[nodiscard]] Claim {
    public:
        Claim() = default;
        /// Waits until nobody uses any of them, and for what their uses marked. Throws NotIdle once the deadline has
        /// passed; without one, Misuse, beginning with `what`, if that would be for ever: this thread holds a use of
        /// one, or those who do wait for this thread's.
        Claim(Residents& books, ResidentList tags, const Deadline& deadline, const char* what);
        Claim(Claim&& other) noexcept;
        Claim& operator=(Claim&&) = delete;
        ~Claim();

        [[nodiscard]] const ResidentList& tags() const noexcept { return tags_; }
        /// Waits for what their uses marked. Throws NotIdle once the deadline has passed, and what a failing driver
        /// call stands for.
        void wait_for_marks(const Deadline& deadline);

    private:
        friend class Residents;

        Residents* books_ = nullptr;
        ResidentList tags_;
    };

    /// Those of `tags` that nobody uses nor claims, at once. Does not wait for what they marked.
    [[nodiscard]] Claim try_claim(const ResidentList& tags);

    /// A tag that may be evicted, as it is now.
    struct Candidate {
        std::shared_ptr<Resident> resident;
        int priority;
        Resident::Clock::time_point last_use;
        bool idle; ///< nobody uses it, takes it away, or waits to
    };
    /// Those of `tags` that may be evicted, in the order in which they should be.
    [[nodiscard]] std::vector<Candidate> candidates(const ResidentList& tags);

    void count_eviction(const Report& out) noexcept;
    void count_arrival(const Report& in) noexcept;
    [[nodiscard]] ResidencyUsage counts() noexcept;

private:
    struct Pauser {
        std::thread::id thread;
        const ResidentList& tags;
        bool patient; // without a deadline
        Pauser* before = nullptr;
        Pauser* after = nullptr;
    };

    // With the lock held:

    [[nodiscard]] std::unique_ptr<UseRecord> grant(const ResidentList& tags, std::unique_ptr<UseRecord> use);
    [[nodiscard]] static bool all_there(const ResidentList& tags, bool await_bytes) noexcept;
    [[nodiscard]] static bool blocked(const ResidentList& tags, bool holds) noexcept;
    /// Whether a use may pass those that wait before `me` (null: all).
    [[nodiscard]] bool may_pass(const Waiter* me) const noexcept;
    void note_pass(const Waiter* me) noexcept;
    [[nodiscard]] bool is_first(const Waiter& me) const noexcept;
    /// Whether it is a waiter's turn to move tags.
    [[nodiscard]] bool may_move(const Waiter& me) const noexcept;
    void wait_for_change(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
    [[nodiscard]] bool held_by(std::thread::id thread) const noexcept;
    /// Whether a thread that waits for these tags waits for itself.
    [[nodiscard]] bool circular(const ResidentList& tags, std::thread::id thread, std::size_t depth) const noexcept;
    void require_open(const ResidentList& tags) const;
    void tell_all() noexcept;

    std::atomic<bool> in_play_{false};
    std::mutex mutex_; // guards what follows
    std::condition_variable changed_;
    std::uint64_t changes_ = 0;
    std::size_t asleep_ = 0;
    bool moving_ = false;
    bool holder_moved_ = false; // the last that moved tags held a use, and had not queued
    bool closed_ = false;
    Waiter* first_ = nullptr;
    Waiter* last_ = nullptr;
    UseRecord* living_ = nullptr;
    Pauser* pausing_ = nullptr;
    ResidencyUsage counts_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/residents.ipp"
#endif
