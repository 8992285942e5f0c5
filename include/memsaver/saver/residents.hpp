// The bookkeeping of residency: uses of each tag, waiting threads, and tags that may be evicted. Does not pause or
// resume, and knows nothing about policies.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/finally.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
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

namespace memsaver::inline v0_3::detail {

/// The residency record of one tag, on all of its devices. Except for the name and `serial`, guarded by the mutex of
/// its Residents.
struct Resident {
    using Clock = std::chrono::steady_clock;

    std::string tag;
    std::uint64_t serial = 0; ///< increases in the order in which tags were made
    bool evictable = false;   ///< set by the program
    bool used = false;        ///< was named in a `use`
    int priority = 0;
    Clock::time_point last_use{}; ///< when a use last began or ended; the epoch: never
    Vector<ArenaCore*> cores{};   ///< on all devices
    std::size_t users = 0;
    std::size_t pausers = 0;      ///< threads that wait for its uses to end in order to pause it
    std::thread::id claimed_by{}; ///< the thread that has claimed it to pause or drop it
    std::uint64_t told = 0;       ///< the part of `losses()` that was reported to a use that has since ended
    std::uint64_t former = 0;     ///< losses of arenas that it no longer has
    Vector<std::shared_ptr<const WorkMark>> marks{}; ///< work marked by uses, for which a pause must wait

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
using ResidentList = Vector<std::shared_ptr<Resident>>;

class Residents;

/// The record behind a living Use. Created and ended by Residents.
class UseRecord {
public:
    UseRecord& operator=(UseRecord&&) = delete;
    /// Returns the tags whose bytes had been lost when the use began.
    [[nodiscard]] std::vector<std::string> lost() const {
        std::vector<std::string> tags;
        for (const Of& of : of_) {
            if (of.lost) tags.push_back(of.resident->tag);
        }
        return tags;
    }

private:
    friend class Residents;
    /// Takes all host memory that the use will need. May throw std::bad_alloc.
    explicit UseRecord(const ResidentList& tags) : holder_{ThreadMark::here()} {
        of_.reserve(tags.size());
        for (const auto& tag : tags) of_.push_back({tag});
    }

    struct Of {
        std::shared_ptr<Resident> resident;
        std::uint64_t losses = 0;
        bool lost = false;
    };
    Vector<Of> of_;
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
    // --- tags ---

    void add(Resident& tag, ArenaCore& core) {
        const std::lock_guard lock{mutex_};
        if (tag.evictable) in_play_.store(true, std::memory_order_relaxed);
        tag.cores.push_back(&core);
    }
    void remove(Resident& tag, const ArenaCore& core) noexcept {
        const std::lock_guard lock{mutex_};
        erase_in(tag.cores, [&](const ArenaCore* each) { return each == &core; });
        tag.former += core.losses();
    }
    void set_evictable(const ResidentList& tags, bool yes) {
        const std::lock_guard lock{mutex_};
        for (const auto& tag : tags) {
            tag->evictable = yes;
            if (!yes) tag->used = false; // until it is named in a use again
        }
        if (yes) in_play_.store(true, std::memory_order_relaxed);
        notify_all();
    }
    void set_priority(const ResidentList& tags, int priority) {
        const std::lock_guard lock{mutex_};
        for (const auto& tag : tags) tag->priority = priority;
    }
    /// Sets whether an arena is dropped, or about to be; once all of a tag are, no use of it begins.
    void set_dropped(ArenaCore& core, bool yes) noexcept {
        const std::lock_guard lock{mutex_};
        core.dropped.store(yes);
        notify_all();
    }
    /// Leaves out tags that were dropped.
    void leave_out_gone(ResidentList& tags) noexcept {
        const std::lock_guard lock{mutex_};
        erase_in(tags, [](const auto& tag) { return tag->gone(); });
    }
    void fill(const Resident& tag, ArenaUsage& row) noexcept {
        const std::lock_guard lock{mutex_};
        row.users = tag.users;
        row.evictable = tag.may_be_evicted();
        row.priority = tag.priority;
        if (tag.last_use != Resident::Clock::time_point{}) row.age = Resident::Clock::now() - tag.last_use;
    }
    [[nodiscard]] Holder holder_of(const Resident& tag) {
        const std::lock_guard lock{mutex_};
        const char* const state = tag.users != 0                        ? "in use"
                                  : tag.claimed_by != std::thread::id{} ? "moving"
                                  : tag.may_be_evicted()                ? "idle"
                                                                        : "not evictable";
        return {tag.tag, 0, 0, tag.users, state};
    }
    /// Returns whether any tag was ever used or made evictable; otherwise residency is not mentioned in errors.
    [[nodiscard]] bool in_play() const noexcept { return in_play_.load(std::memory_order_relaxed); }
    /// Closes: waiting threads and new uses throw Misuse.
    void close() noexcept {
        const std::lock_guard lock{mutex_};
        closed_ = true;
        notify_all();
    }

    // --- uses ---

    /// Returns a use if all tags are resident (or also arriving, if not `await_bytes`) and nothing must be waited for;
    /// otherwise null. Inside a `capture` of this thread the queue is ignored.
    [[nodiscard]] UniquePtr<UseRecord> try_use(const ResidentList& tags, bool await_bytes, bool capture) {
        link_uses();
        UniquePtr<UseRecord> use{new UseRecord{tags}};
        const std::lock_guard lock{mutex_};
        require_open(tags);
        if (!all_resident(tags, await_bytes)) return nullptr;
        if (blocked(tags, capture) && (blocked(tags, true) || !held_here())) return nullptr;
        counts_.hits += 1;
        return grant(std::move(use));
    }
    /// Ends a use. Null is a no-op.
    void end(UniquePtr<UseRecord> use) noexcept {
        if (use == nullptr) return;
        const auto now = Resident::Clock::now();
        const std::lock_guard lock{mutex_};
        UseRecord** link = &living_;
        while (*link != use.get()) link = &(*link)->before_;
        *link = use->before_;
        for (const UseRecord::Of& of : use->of_) {
            Resident& tag = *of.resident;
            tag.users -= 1;
            tag.last_use = now;
            tag.told = std::max(tag.told, of.losses);
        }
        notify_all();
    }
    /// This thread holds the use from now on.
    void take_over(UseRecord& use) noexcept {
        ThreadMark here = ThreadMark::here_if_possible(); // the former mark is destroyed without the lock
        const std::lock_guard lock{mutex_};
        std::swap(use.holder_, here);
    }
    /// Makes pauses of the use's tags wait for this mark as well.
    void add_mark(UseRecord& use, const std::shared_ptr<const WorkMark>& mark) {
        const std::lock_guard lock{mutex_};
        for (const UseRecord::Of& of : use.of_) {
            auto& marks = of.resident->marks;
            const auto* const first = first_in(marks, [](const auto& each) { // that has not passed
                bool passed = false;
                return !each->query(passed).ok() || !passed;
            });
            marks.erase(marks.begin(), first != nullptr ? first : marks.end());
            if (marks.empty() || marks.back() != mark) marks.push_back(mark);
        }
    }
    /// Returns the drivers of the use's tags.
    [[nodiscard]] Vector<AnyDriver> drivers_of(const UseRecord& use) {
        Vector<AnyDriver> drivers;
        const std::lock_guard lock{mutex_};
        for (const UseRecord::Of& of : use.of_) {
            for (const ArenaCore* const core : of.resident->cores) {
                if (!is_in(drivers, core->driver())) drivers.push_back(core->driver());
            }
        }
        return drivers;
    }
    /// Returns whether this thread holds a use or is already waiting for one: then it must not queue.
    [[nodiscard]] bool holds_any() {
        const pthread_t here = ::pthread_self();
        const std::lock_guard lock{mutex_};
        // on_no_room may call `use` while its thread waits
        return held_here() || any_in(queue_, [&](auto* each) { return ::pthread_equal(each->thread_, here) != 0; });
    }

    /// A waiting use; it is in the queue from construction to destruction.
    class Waiter {
    public:
        Waiter(Residents& residents, const ResidentList& tags, bool await_bytes)
            : residents_{residents}, tags_{tags}, await_bytes_{await_bytes}, holds_{residents.holds_any()} {
            const std::lock_guard lock{residents_.mutex_};
            residents_.queue_.push_back(this);
            residents_.counts_.misses += 1;
        }
        Waiter& operator=(Waiter&&) = delete;
        ~Waiter() {
            stop_moving();
            const std::lock_guard lock{residents_.mutex_};
            erase_in(residents_.queue_, [&](const Waiter* each) { return each == this; });
            residents_.notify_all();
        }

        [[nodiscard]] bool holds_any() const noexcept { return holds_; }
        /// Waits until the tags are all resident, and returns the use; or until it is this waiter's turn to move them,
        /// or the deadline passes in the queue, and returns null; see `moves`. Throws Misuse if a tag was dropped or
        /// the saver closed.
        [[nodiscard]] UniquePtr<UseRecord> await(const Deadline& deadline) {
            UniquePtr<UseRecord> use{new UseRecord{tags_}};
            std::unique_lock lock{residents_.mutex_};
            for (;; residents_.wait_for_change(lock, deadline)) {
                residents_.require_open(tags_);
                blocked_ = residents_.blocked(tags_, holds_);
                if (!blocked_) {
                    if (all_resident(tags_, await_bytes_)) return residents_.grant(std::move(use));
                    if (residents_.may_move(*this)) {
                        residents_.mover_ = this;
                        seen_ = residents_.changes_;
                        for (const auto& tag : tags_) tag->users += 1;
                        spare_ = std::move(use);
                        return nullptr;
                    }
                }
                if (!std::exchange(waited_, true)) residents_.counts_.waits += 1;
                if (blocked_) want({}); // others need not wait for it now
                if (over(deadline)) return nullptr;
            }
        }
        /// Returns whether it is this waiter's turn: then `stop_moving` or `settle` must follow.
        [[nodiscard]] bool moves() const noexcept { return spare_ != nullptr; }
        /// Returns whether the queue's last wait was for other threads' pauses of the tags.
        [[nodiscard]] bool blocked() const noexcept { return blocked_; }
        /// Ends the move, if any, without a use. Wakes all waiters.
        void stop_moving() noexcept {
            if (!moves()) return;
            const UniquePtr<UseRecord> unused = std::move(spare_);
            const std::lock_guard lock{residents_.mutex_};
            end_move();
            seen_ += 1; // not counting the change made here
        }
        /// Ends a move that resumed everything. Returns the use, or null if a tag was paused again.
        [[nodiscard]] UniquePtr<UseRecord> settle() {
            UniquePtr<UseRecord> use = std::move(spare_);
            const std::lock_guard lock{residents_.mutex_};
            end_move();
            residents_.require_open(tags_);
            return all_resident(tags_, await_bytes_) ? residents_.grant(std::move(use)) : nullptr;
        }
        /// Between two moves: waits until something may have changed since the last one began, or for a short time.
        /// Until the next call of `await` that has to wait for a pause, no use of the tags `wanted` begins on threads
        /// that hold none.
        void await_change(ResidentList wanted, const Deadline& deadline) {
            std::unique_lock lock{residents_.mutex_};
            residents_.require_open(tags_);
            want(std::move(wanted));
            if (!std::exchange(waited_, true)) residents_.counts_.waits += 1;
            // Memory freed by deallocations, drops or other programs is not signaled here: poll.
            const Deadline until = earlier(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds{20});
            while (residents_.changes_ == seen_ && !over(until)) residents_.wait_for_change(lock, until);
        }

    private:
        friend class Residents;
        // with the lock held:
        void want(ResidentList tags) noexcept {
            if (wanted_ == tags) return;
            wanted_.swap(tags);
            residents_.notify_all();
            seen_ += 1; // not counting the change made here
        }
        void end_move() noexcept {
            for (const auto& tag : tags_) tag->users -= 1;
            residents_.mover_ = nullptr;
            residents_.notify_all();
        }

        Residents& residents_;
        const ResidentList& tags_;
        ResidentList wanted_{}; // no use of these begins on threads that hold none
        const bool await_bytes_;
        const bool holds_;
        const pthread_t thread_ = ::pthread_self();
        bool waited_ = false;
        bool blocked_ = false;
        std::uint64_t seen_ = 0;
        UniquePtr<UseRecord> spare_; // while it moves: the result of `settle`, allocated early so that no host memory
                                     // is needed once the tags are resident
    };

    // --- claims and evictions ---

    /// One more thread, or one less, evicts for an allocation or a resume. It does not queue, because uses in the queue
    /// may wait for other uses.
    void evicting(int more) noexcept {
        const std::lock_guard lock{mutex_};
        evicting_ += more;
        notify_all();
    }
    /// While other threads evict or move tags, waits until there were more than `seen` evictions, or until the
    /// deadline. Returns whether there were.
    [[nodiscard]] bool await_eviction(std::size_t seen, const Deadline& deadline) {
        std::unique_lock lock{mutex_};
        while ((mover_ != nullptr || evicting_ != 0) && counts_.evictions == seen) {
            if (over(deadline)) return false;
            wait_for_change(lock, deadline);
        }
        return counts_.evictions != seen;
    }

    /// Exclusive hold on unused tags, for a pause, drop or eviction: no use of them begins until it ends. Leaves out
    /// tags that this thread has already claimed.
    class [[nodiscard]] Claim {
    public:
        /// Does not wait: claims nothing if any of the tags is used or claimed. Does not wait for marked work.
        Claim(Residents& residents, const ResidentList& tags) : residents_{residents} {
            ResidentList copy{tags};
            const std::lock_guard lock{residents.mutex_};
            if (!all_in(tags, [](const auto& tag) { return idle(*tag) && !tag->gone(); })) return;
            for (const auto& tag : tags) tag->claimed_by = std::this_thread::get_id();
            residents.notify_all();
            tags_ = std::move(copy);
        }
        /// Waits until none of the tags is in use and the work that their uses marked has completed. Throws NotIdle
        /// after the deadline. Without a deadline, throws Misuse, beginning with `what`, if this thread holds a use of
        /// a tag: it would wait forever.
        Claim(Residents& residents, ResidentList tags, const Deadline& deadline, const char* what) : Claim{residents} {
            const std::thread::id here = std::this_thread::get_id();
            std::unique_lock lock{residents.mutex_};
            erase_in(tags, [&](const auto& tag) { return tag->claimed_by == here; });
            const auto claimed = [](const auto& tag) { return tag->claimed_by != std::thread::id{}; };
            for (;; residents.wait_for_change(lock, deadline)) {
                if (used_among(tags) != nullptr)
                    residents.of_uses_.load()->await_ends(residents, lock, tags, deadline, what);
                const auto* const other = first_in(tags, claimed);
                if (other == nullptr) break;
                if (over(deadline)) {
                    naming((*other)->tag, [&] {
                        not_idle({"tag ", in_quotes((*other)->tag),
                                  " was still being paused when the timeout expired; nothing has changed"});
                    });
                }
            }
            for (const auto& tag : tags) tag->claimed_by = here;
            residents.notify_all();
            tags_ = std::move(tags);
            lock.unlock();
            if (const OfUses* const of_uses = residents.of_uses_.load())
                of_uses->wait_for_marks(*this, deadline); // if it throws, the claim ends
        }
        Claim& operator=(Claim&&) = delete;
        ~Claim() { end(); }

        [[nodiscard]] const ResidentList& tags() const noexcept { return tags_; }
        /// Waits for the work that the tags' uses marked. Throws NotIdle after the deadline, or the exception for a
        /// failed driver call.
        void wait_for_marks(const Deadline& deadline) {
            for (const auto& tag : tags_) {
                for (const auto& mark : tag->marks) { // only uses add some, and a claimed tag has none
                    if (!deadline) {
                        const Status status =
                            mark->wait(); // a lost device has no work; later calls on it report the loss
                        if (status.kind != StatusKind::gone) check(status, "wait for the work that a use marked");
                        continue;
                    }
                    const bool passed = poll_until(deadline, [&] {
                        bool yes = false;
                        const Status status = mark->query(yes);
                        if (status.kind != StatusKind::gone) check(status, "query the work that a use marked");
                        return yes || !status.ok();
                    });
                    if (!passed) {
                        not_idle(
                            {"tag ", in_quotes(tag->tag),
                             ": work that a use of it marked with `until` had not completed when the timeout expired; "
                             "nothing has changed"});
                    }
                }
                Vector<std::shared_ptr<const WorkMark>> passed; // destroyed without the lock
                const std::lock_guard lock{residents_.mutex_};
                passed.swap(tag->marks);
            }
        }
        void end() noexcept {
            if (tags_.empty()) return;
            const ResidentList ended{std::exchange(tags_, {})}; // destroyed without the lock
            const std::lock_guard lock{residents_.mutex_};
            for (const auto& tag : ended) tag->claimed_by = {};
            residents_.notify_all();
        }

    private:
        explicit Claim(Residents& residents) noexcept : residents_{residents} {}

        Residents& residents_;
        ResidentList tags_;
    };

    /// A tag that may be evicted, and its memory on each of some devices.
    struct Candidate {
        std::shared_ptr<Resident> resident;
        Vector<std::size_t> bytes;
        bool idle = false; ///< not used, not claimed, and no thread waits to pause it
    };
    /// Says which of these are idle, leaves out tags that may not be evicted, and sorts the others in eviction order.
    void rank(Vector<Candidate>& tags) {
        const std::lock_guard lock{mutex_};
        erase_in(tags, [](const auto& each) { return !each.resident->may_be_evicted() || each.resident->gone(); });
        for (Candidate& each : tags) each.idle = idle(*each.resident);
        using Key = std::uint64_t (*)(const Candidate&);
        constexpr Key keys[]{
            [](const Candidate& each) { return each.resident->serial; }, // of tags that were never used
            [](const Candidate& each) { return key_of(each.resident->last_use.time_since_epoch().count()); },
            [](const Candidate& each) { return key_of(each.resident->priority); },
        };
        for (const Key key : keys) sort_by(tags, key);
    }

    void count_eviction(const Report& out) noexcept {
        const std::lock_guard lock{mutex_};
        const std::string* last = nullptr;
        for (const TagReport& row : out.tags) { // rows of one tag are adjacent
            if (row.released_bytes == 0 && row.handed_bytes == 0) continue;
            if (last == nullptr || *last != row.tag) counts_.evictions += 1;
            last = &row.tag;
        }
        counts_.evicted_bytes += out.released_bytes + out.handed_bytes;
        counts_.saved_bytes += out.saved_bytes;
    }
    void count_arrival(const Report& in) noexcept {
        const std::lock_guard lock{mutex_};
        counts_.brought_bytes += in.mapped_bytes;
        counts_.restored_bytes += in.restored_bytes;
    }
    [[nodiscard]] ResidencyUsage counts() noexcept {
        const std::lock_guard lock{mutex_};
        return counts_;
    }

private:
    /// What a pause needs only once there are uses. The first use links it, so that programs without uses do not.
    struct OfUses {
        void (*await_ends)(Residents&, std::unique_lock<std::mutex>&, const ResidentList&, const Deadline&,
                           const char*);
        void (*wait_for_marks)(Claim&, const Deadline&);
    };
    void link_uses() noexcept {
        static constexpr OfUses of_uses{[](Residents& residents, std::unique_lock<std::mutex>& lock,
                                           const ResidentList& tags, const Deadline& deadline,
                                           const char* what) { residents.await_ends(lock, tags, deadline, what); },
                                        [](Claim& claim, const Deadline& deadline) { claim.wait_for_marks(deadline); }};
        of_uses_.store(&of_uses);
    }
    std::atomic<const OfUses*> of_uses_{nullptr};

    // Called with the lock held:

    [[nodiscard]] static bool idle(const Resident& tag) noexcept {
        return tag.users == 0 && tag.pausers == 0 && tag.claimed_by == std::thread::id{};
    }
    /// Returns the first of these tags that is in use, or null.
    [[nodiscard]] static const Resident* used_among(const ResidentList& tags) noexcept {
        const auto* const used = first_in(tags, [](const auto& tag) { return tag->users != 0; });
        return used != nullptr ? used->get() : nullptr;
    }
    /// Waits until none of these tags is in use, and lets no new use of them begin meanwhile; see Claim.
    void await_ends(std::unique_lock<std::mutex>& lock, const ResidentList& tags, const Deadline& deadline,
                    const char* what) {
        const auto pausers = [&](bool more) { // while there are some, no new use of the tags begins
            for (const auto& tag : tags) more ? ++tag->pausers : --tag->pausers;
            notify_all(); // uses waiting for these tags now let others pass, and later go on
        };
        pausers(true);
        const Finally end{[&] { pausers(false); }};
        for (;; wait_for_change(lock, deadline)) {
            const Resident* const used = used_among(tags);
            if (used == nullptr) return;
            if (closed_) misuse({what, ": the saver has been closed"});
            if (!deadline && (held_here(&tags) || moves_here(tags))) {
                misuse({what, ": tag ", in_quotes(used->tag),
                        " is in use by this thread; without a timeout, this call would wait forever"});
            }
            if (over(deadline)) {
                not_idle({"tag ", in_quotes(used->tag), " still had ", in_digits(used->users),
                          used->users == 1 ? " use" : " uses", " when the timeout expired; nothing has changed"});
            }
        }
    }
    /// Begins the use. Needs no host memory: its tags may have been moved for it.
    [[nodiscard]] UniquePtr<UseRecord> grant(UniquePtr<UseRecord> use) noexcept {
        const auto now = Resident::Clock::now();
        for (UseRecord::Of& of : use->of_) {
            Resident& tag = *of.resident;
            of.losses = tag.losses();
            of.lost = of.losses > tag.told;
            tag.users += 1;
            tag.used = true;
            tag.last_use = now;
        }
        use->before_ = std::exchange(living_, use.get());
        in_play_.store(true, std::memory_order_relaxed);
        return use;
    }
    [[nodiscard]] static bool all_resident(const ResidentList& tags, bool await_bytes) noexcept {
        return all_in(tags, [&](const auto& tag) {
            return all_in(tag->cores, [&](ArenaCore* core) {
                return core->all_resident() || (!await_bytes && core->on_its_way());
            });
        });
    }
    [[nodiscard]] bool blocked(const ResidentList& tags, bool holds) const noexcept {
        return any_in(tags, [&](const auto& tag) {
            return tag->claimed_by != std::thread::id{} || (!holds && (tag->pausers != 0 || wanted(tag)));
        });
    }
    [[nodiscard]] bool wanted(const std::shared_ptr<Resident>& tag) const noexcept {
        return any_in(queue_, [&](const Waiter* each) { return is_in(each->wanted_, tag); });
    }
    /// Returns whether it is this waiter's turn to move tags.
    [[nodiscard]] bool may_move(const Waiter& me) const noexcept {
        if (mover_ != nullptr || me.holds_) return mover_ == nullptr;
        const auto* const first = first_in(
            queue_, [&](const Waiter* each) { return each == &me || (!each->holds_ && !blocked(each->tags_, false)); });
        return *first == &me;
    }
    void wait_for_change(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
        const std::uint64_t seen = changes_;
        const auto changed = [&] { return changes_ != seen; };
        if (!deadline) return changed_.wait(lock, changed);
        changed_.wait_until(lock, *deadline, changed);
    }
    /// Returns whether this thread holds a use, of one of these tags if given.
    [[nodiscard]] bool held_here(const ResidentList* of = nullptr) const noexcept {
        const UseRecord* use = living_;
        while (use != nullptr && !(use->holder_.is_here() && any_in(use->of_, [&](const UseRecord::Of& each) {
                                       return of == nullptr || is_in(*of, each.resident);
                                   })))
            use = use->before_;
        return use != nullptr;
    }
    /// Returns whether this thread moves one of these tags: a hook of an eviction runs on that thread.
    [[nodiscard]] bool moves_here(const ResidentList& tags) const noexcept {
        return mover_ != nullptr && ::pthread_equal(mover_->thread_, ::pthread_self()) != 0 &&
               any_in(mover_->tags_, [&](const auto& tag) { return is_in(tags, tag); });
    }
    void require_open(const ResidentList& tags) const {
        if (closed_) misuse({"use: the saver has been closed"});
        for (const auto& tag : tags) {
            if (tag->gone()) misuse({"use: tag ", in_quotes(tag->tag), " has been dropped"});
        }
    }
    void notify_all() noexcept {
        changes_ += 1;
        changed_.notify_all();
    }

    std::atomic<bool> in_play_{false};
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::uint64_t changes_ = 0;
    const Waiter* mover_ = nullptr; // moves its tags, which count as in use
    bool closed_ = false;
    int evicting_ = 0;            // threads that evict for allocations and resumes
    Vector<Waiter*> queue_;       // those of threads that hold a use only stand in it
    UseRecord* living_ = nullptr; // the newest one
    ResidencyUsage counts_;
};

} // namespace memsaver::inline v0_3::detail
