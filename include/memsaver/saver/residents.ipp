// Definitions of residents.hpp.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/saver/residents.hpp"

#include <algorithm>
#include <chrono>
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

// --- tags ---

MEMSAVER_INLINE void Residents::add(Resident& tag, ArenaCore& core) {
    const std::lock_guard lock{mutex_};
    if (tag.evictable) in_play_.store(true, std::memory_order_relaxed);
    tag.cores.push_back(&core);
}

MEMSAVER_INLINE void Residents::remove(Resident& tag, const ArenaCore& core) noexcept {
    const std::lock_guard lock{mutex_};
    erase_in(tag.cores, [&](const ArenaCore* each) { return each == &core; });
    tag.former += core.losses();
}

MEMSAVER_INLINE void Residents::set_evictable(const ResidentList& tags, bool yes) {
    const std::lock_guard lock{mutex_};
    for (const auto& tag : tags) {
        tag->evictable = yes;
        if (!yes) tag->used = false; // until it is named in a use again
    }
    if (yes) in_play_.store(true, std::memory_order_relaxed);
    notify_all();
}

MEMSAVER_INLINE void Residents::set_priority(const ResidentList& tags, int priority) {
    const std::lock_guard lock{mutex_};
    for (const auto& tag : tags) tag->priority = priority;
}

MEMSAVER_INLINE void Residents::set_dropped(ArenaCore& core, bool yes) noexcept {
    const std::lock_guard lock{mutex_};
    core.dropped.store(yes);
    notify_all();
}

MEMSAVER_INLINE bool Residents::any_gone(const ResidentList& tags) noexcept {
    const std::lock_guard lock{mutex_};
    return any_in(tags, [](const auto& tag) { return tag->gone(); });
}

MEMSAVER_INLINE void Residents::leave_out_gone(ResidentList& tags) noexcept {
    const std::lock_guard lock{mutex_};
    erase_in(tags, [](const auto& tag) { return tag->gone(); });
}

MEMSAVER_INLINE void Residents::fill(const Resident& tag, ArenaUsage& row) noexcept {
    const std::lock_guard lock{mutex_};
    row.users = tag.users;
    row.evictable = tag.may_be_evicted();
    row.priority = tag.priority;
    if (tag.last_use != Resident::Clock::time_point{}) row.age = Resident::Clock::now() - tag.last_use;
}

MEMSAVER_INLINE Holder Residents::holder_of(const Resident& tag) {
    const std::lock_guard lock{mutex_};
    const char* const state = tag.users != 0                        ? "in use"
                              : tag.claimed_by != std::thread::id{} ? "moving"
                              : tag.may_be_evicted()                ? "idle"
                                                                    : "not evictable";
    return {tag.tag, 0, 0, tag.users, state};
}

MEMSAVER_INLINE void Residents::close() noexcept {
    const std::lock_guard lock{mutex_};
    closed_ = true;
    notify_all();
}

// --- uses ---

MEMSAVER_INLINE UseRecord::UseRecord(const ResidentList& tags) : holder_{ThreadMark::here()} {
    of_.reserve(tags.size());
    for (const auto& tag : tags) of_.push_back({tag});
}

MEMSAVER_INLINE std::vector<std::string> UseRecord::lost() const {
    std::vector<std::string> tags;
    for (const Of& of : of_) {
        if (of.lost) tags.push_back(of.resident->tag);
    }
    return tags;
}

MEMSAVER_INLINE std::unique_ptr<UseRecord> Residents::try_use(const ResidentList& tags, bool await_bytes,
                                                              bool capture) {
    link_uses();
    std::unique_ptr<UseRecord> use{new UseRecord{tags}};
    const std::lock_guard lock{mutex_};
    require_open(tags);
    if (!all_resident(tags, await_bytes)) return nullptr;
    if (blocked(tags, capture) && (blocked(tags, true) || !held_here())) return nullptr;
    counts_.hits += 1;
    return grant(std::move(use));
}

MEMSAVER_INLINE void Residents::take_over(UseRecord& use) noexcept {
    ThreadMark here = ThreadMark::here_if_possible(); // the former mark is destroyed without the lock
    const std::lock_guard lock{mutex_};
    std::swap(use.holder_, here);
}

MEMSAVER_INLINE void Residents::end(std::unique_ptr<UseRecord> use) noexcept {
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

MEMSAVER_INLINE void Residents::add_mark(UseRecord& use, const std::shared_ptr<const WorkMark>& mark) {
    const std::lock_guard lock{mutex_};
    for (const UseRecord::Of& of : use.of_) {
        auto& marks = of.resident->marks;
        marks.erase(marks.begin(), std::find_if(marks.begin(), marks.end(), [](const auto& each) {
                        bool passed = false;
                        return !each->query(passed).ok() || !passed;
                    }));
        if (marks.empty() || marks.back() != mark) marks.push_back(mark);
    }
}

MEMSAVER_INLINE std::vector<AnyDriver> Residents::drivers_of(const UseRecord& use) {
    std::vector<AnyDriver> drivers;
    const std::lock_guard lock{mutex_};
    for (const UseRecord::Of& of : use.of_) {
        for (const ArenaCore* const core : of.resident->cores) {
            if (!is_in(drivers, core->driver())) {
                drivers.push_back(core->driver());
            }
        }
    }
    return drivers;
}

MEMSAVER_INLINE bool Residents::holds_any() {
    const pthread_t here = ::pthread_self();
    const std::lock_guard lock{mutex_};
    // on_no_room may call `use` while its thread waits
    return held_here() || any_in(queue_, [&](auto* each) { return ::pthread_equal(each->thread_, here) != 0; });
}

MEMSAVER_INLINE Residents::Waiter::Waiter(Residents& residents, const ResidentList& tags, bool await_bytes)
    : residents_{residents}, tags_{tags}, await_bytes_{await_bytes}, holds_{residents.holds_any()} {
    const std::lock_guard lock{residents_.mutex_};
    residents_.queue_.push_back(this);
    residents_.counts_.misses += 1;
}

MEMSAVER_INLINE Residents::Waiter::~Waiter() {
    stop_moving();
    const std::lock_guard lock{residents_.mutex_};
    erase_in(residents_.queue_, [&](const Waiter* each) { return each == this; });
    residents_.notify_all();
}

MEMSAVER_INLINE std::unique_ptr<UseRecord> Residents::Waiter::await(const Deadline& room, const Deadline& rest) {
    std::unique_ptr<UseRecord> use{new UseRecord{tags_}};
    std::unique_lock lock{residents_.mutex_};
    for (;;) {
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
        const Deadline deadline = blocked_ ? rest : earlier(room, rest);
        if (deadline && std::chrono::steady_clock::now() >= *deadline) {
            not_idle({"use: other threads' uses, pauses or resumes had not ended when the timeout expired; nothing has "
                      "changed"});
        }
        residents_.wait_for_change(lock, deadline);
    }
}

MEMSAVER_INLINE void Residents::Waiter::end_move() noexcept {
    for (const auto& tag : tags_) tag->users -= 1;
    residents_.mover_ = nullptr;
    residents_.notify_all();
}

MEMSAVER_INLINE void Residents::Waiter::stop_moving() noexcept {
    const std::lock_guard lock{residents_.mutex_};
    if (!moves()) return;
    end_move();
    seen_ += 1; // not counting the change made here
}

MEMSAVER_INLINE std::unique_ptr<UseRecord> Residents::Waiter::settle() {
    const std::lock_guard lock{residents_.mutex_};
    end_move();
    residents_.require_open(tags_);
    return all_resident(tags_, await_bytes_) ? residents_.grant(std::move(spare_)) : nullptr;
}

MEMSAVER_INLINE void Residents::Waiter::want(ResidentList tags) noexcept {
    if (wanted_ == tags) return;
    wanted_.swap(tags);
    residents_.notify_all();
    seen_ += 1; // not counting the change made here
}

MEMSAVER_INLINE void Residents::Waiter::await_change(ResidentList wanted, const Deadline& deadline) {
    std::unique_lock lock{residents_.mutex_};
    residents_.require_open(tags_);
    want(std::move(wanted));
    if (!std::exchange(waited_, true)) residents_.counts_.waits += 1;
    // Memory freed by deallocations, drops or other programs is not signaled here: poll.
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds{20};
    const auto until = deadline && *deadline < soon ? *deadline : soon;
    while (residents_.changes_ == seen_ && std::chrono::steady_clock::now() < until)
        residents_.wait_for_change(lock, until);
}

// --- claims and evictions ---

MEMSAVER_INLINE Residents::Evicting::Evicting(Residents& residents) : residents_{residents} {
    const std::lock_guard lock{residents_.mutex_};
    residents_.evicting_ += 1;
}

MEMSAVER_INLINE Residents::Evicting::~Evicting() {
    const std::lock_guard lock{residents_.mutex_};
    residents_.evicting_ -= 1;
    residents_.notify_all();
}

MEMSAVER_INLINE bool Residents::await_eviction(std::size_t seen, const Deadline& deadline) {
    std::unique_lock lock{mutex_};
    while ((mover_ != nullptr || evicting_ != 0) && counts_.evictions == seen) {
        if (deadline && std::chrono::steady_clock::now() >= *deadline) return false;
        wait_for_change(lock, deadline);
    }
    return counts_.evictions != seen;
}

MEMSAVER_INLINE Residents::Claim::Claim(Residents& residents, ResidentList tags, const Deadline& deadline,
                                        const char* what)
    : Claim{residents} {
    const std::thread::id here = std::this_thread::get_id();
    std::unique_lock lock{residents.mutex_};
    erase_in(tags, [&](const auto& tag) { return tag->claimed_by == here; });
    const auto claimed = [](const auto& tag) { return tag->claimed_by != std::thread::id{}; };
    for (;; residents.wait_for_change(lock, deadline)) {
        if (used_among(tags) != nullptr) residents.of_uses_.load()->await_ends(residents, lock, tags, deadline, what);
        if (!any_in(tags, claimed)) break;
        if (deadline && std::chrono::steady_clock::now() >= *deadline) {
            not_idle({"tag ", in_quotes(tags.front()->tag),
                      " was still being paused when the timeout expired; nothing has changed"});
        }
    }
    for (const auto& tag : tags) tag->claimed_by = here;
    residents.notify_all();
    tags_ = std::move(tags);
    lock.unlock();
    if (const OfUses* const of_uses = residents.of_uses_.load())
        of_uses->wait_for_marks(*this, deadline); // if it throws, the claim ends
}

MEMSAVER_INLINE Residents::Claim::Claim(Residents& residents, const ResidentList& tags) : residents_{residents} {
    ResidentList copy{tags};
    const std::lock_guard lock{residents.mutex_};
    if (!all_in(tags, [](const auto& tag) { return idle(*tag) && !tag->gone(); })) return;
    for (const auto& tag : tags) tag->claimed_by = std::this_thread::get_id();
    residents.notify_all();
    tags_ = std::move(copy);
}

MEMSAVER_INLINE const Resident* Residents::used_among(const ResidentList& tags) noexcept {
    const auto used = std::find_if(tags.begin(), tags.end(), [](const auto& tag) { return tag->users != 0; });
    return used != tags.end() ? used->get() : nullptr;
}

MEMSAVER_INLINE void Residents::await_ends(std::unique_lock<std::mutex>& lock, const ResidentList& tags,
                                           const Deadline& deadline, const char* what) {
    struct Pauser { // while it lives, no new use of the tags begins
        Residents& all;
        const ResidentList& tags;
        Pauser(Residents& of, const ResidentList& its) : all{of}, tags{its} {
            for (const auto& tag : tags) tag->pausers += 1;
            all.notify_all(); // uses waiting for these tags now let others pass
        }
        Pauser(const Pauser&) = delete;
        Pauser& operator=(const Pauser&) = delete;
        ~Pauser() {
            for (const auto& tag : tags) tag->pausers -= 1;
            all.notify_all();
        }
    } const waiting{*this, tags};
    for (;; wait_for_change(lock, deadline)) {
        const Resident* const used = used_among(tags);
        if (used == nullptr) return;
        if (closed_) misuse({what, ": the saver has been closed"});
        if (!deadline && (held_here(&tags) || moves_here(tags))) {
            misuse({what, ": tag ", in_quotes(used->tag),
                    " is in use by this thread; without a timeout, this call would wait forever"});
        }
        if (deadline && std::chrono::steady_clock::now() >= *deadline) {
            not_idle({"tag ", in_quotes(used->tag), " still had ", in_digits(used->users),
                      used->users == 1 ? " use" : " uses", " when the timeout expired; nothing has changed"});
        }
    }
}

MEMSAVER_INLINE void Residents::link_uses() noexcept {
    static constexpr OfUses of_uses{[](Residents& residents, std::unique_lock<std::mutex>& lock,
                                       const ResidentList& tags, const Deadline& deadline,
                                       const char* what) { residents.await_ends(lock, tags, deadline, what); },
                                    [](Claim& claim, const Deadline& deadline) { claim.wait_for_marks(deadline); }};
    of_uses_.store(&of_uses);
}

MEMSAVER_INLINE void Residents::Claim::end() noexcept {
    if (tags_.empty()) return;
    const ResidentList ended{std::exchange(tags_, {})}; // destroyed without the lock
    const std::lock_guard lock{residents_.mutex_};
    for (const auto& tag : ended) tag->claimed_by = {};
    residents_.notify_all();
}

MEMSAVER_INLINE void Residents::Claim::wait_for_marks(const Deadline& deadline) {
    for (const auto& tag : tags_) {
        std::vector<std::shared_ptr<const WorkMark>> marks; // destroyed without the lock
        {
            const std::lock_guard lock{residents_.mutex_};
            marks = tag->marks; // none is added while the tag is claimed
        }
        for (const auto& mark : marks) {
            if (!deadline) {
                const Status status = mark->wait(); // a lost device has no work; later calls on it report the loss
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
                not_idle({"tag ", in_quotes(tag->tag),
                          ": work that a use of it marked with `until` had not completed when the timeout expired; "
                          "nothing has changed"});
            }
        }
        const std::lock_guard lock{residents_.mutex_};
        tag->marks.clear();
    }
}

MEMSAVER_INLINE void Residents::rank(std::vector<Candidate>& tags) {
    {
        const std::lock_guard lock{mutex_};
        erase_in(tags, [](const auto& each) { return !each.resident->may_be_evicted() || each.resident->gone(); });
        for (Candidate& each : tags) {
            each.priority = each.resident->priority;
            each.last_use = each.resident->last_use;
            each.idle = idle(*each.resident);
        }
    }
    sort_by(tags, [](const Candidate& each) { return each.resident->serial; }); // tags that were never used
    sort_by(tags, [](const Candidate& each) { return key_of(each.last_use.time_since_epoch().count()); });
    sort_by(tags, [](const Candidate& each) { return key_of(each.priority); });
}

MEMSAVER_INLINE void Residents::count_eviction(const Report& out) noexcept {
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

MEMSAVER_INLINE void Residents::count_arrival(const Report& in) noexcept {
    const std::lock_guard lock{mutex_};
    counts_.brought_bytes += in.mapped_bytes;
    counts_.restored_bytes += in.restored_bytes;
}

MEMSAVER_INLINE ResidencyUsage Residents::counts() noexcept {
    const std::lock_guard lock{mutex_};
    return counts_;
}

// --- called with the lock held ---

MEMSAVER_INLINE std::unique_ptr<UseRecord> Residents::grant(std::unique_ptr<UseRecord> use) noexcept {
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

MEMSAVER_INLINE bool Residents::all_resident(const ResidentList& tags, bool await_bytes) noexcept {
    return all_in(tags, [&](const auto& tag) {
        return all_in(tag->cores,
                      [&](ArenaCore* core) { return core->all_resident() || (!await_bytes && core->on_its_way()); });
    });
}

MEMSAVER_INLINE bool Residents::blocked(const ResidentList& tags, bool holds) const noexcept {
    return any_in(tags, [&](const auto& tag) {
        return tag->claimed_by != std::thread::id{} || (!holds && (tag->pausers != 0 || wanted(tag)));
    });
}

MEMSAVER_INLINE bool Residents::wanted(const std::shared_ptr<Resident>& tag) const noexcept {
    return any_in(queue_, [&](const Waiter* each) { return is_in(each->wanted_, tag); });
}

MEMSAVER_INLINE bool Residents::may_move(const Waiter& me) const noexcept {
    if (mover_ != nullptr || me.holds_) return mover_ == nullptr;
    const auto first = std::find_if(queue_.begin(), queue_.end(), [&](const Waiter* each) {
        return each == &me || (!each->holds_ && !blocked(each->tags_, false));
    });
    return *first == &me;
}

MEMSAVER_INLINE bool Residents::held_here(const ResidentList* of) const noexcept {
    const UseRecord* use = living_;
    while (use != nullptr && !(use->holder_.is_here() && any_in(use->of_, [&](const UseRecord::Of& each) {
                                   return of == nullptr || is_in(*of, each.resident);
                               })))
        use = use->before_;
    return use != nullptr;
}

MEMSAVER_INLINE bool Residents::moves_here(const ResidentList& tags) const noexcept {
    return mover_ != nullptr && ::pthread_equal(mover_->thread_, ::pthread_self()) != 0 &&
           any_in(mover_->tags_, [&](const auto& tag) { return is_in(tags, tag); });
}

MEMSAVER_INLINE void Residents::require_open(const ResidentList& tags) const {
    if (closed_) misuse({"use: the saver has been closed"});
    for (const auto& tag : tags) {
        if (tag->gone()) misuse({"use: tag ", in_quotes(tag->tag), " has been dropped"});
    }
}

MEMSAVER_INLINE void Residents::wait_for_change(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
    const std::uint64_t seen = changes_;
    const auto changed = [&] { return changes_ != seen; };
    if (deadline) {
        changed_.wait_until(lock, *deadline, changed);
    } else {
        changed_.wait(lock, changed);
    }
}

MEMSAVER_INLINE void Residents::notify_all() noexcept {
    changes_ += 1;
    changed_.notify_all();
}

} // namespace detail

} // namespace memsaver::inline v0_3
