// Bytes of one arena that are in flight while no operation holds its turn: being restored after a resume that did not
// wait for them, or being saved ahead of a pause. Knows nothing about tags or about the users of the bytes.
#pragma once

#include "memsaver/arena/operations.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// One save ahead of a pause, in steps. The constructor begins it; then: wait for the device, `idle`, `enqueue`; after
/// that an Arriving takes over. Destroying it before that changes nothing. The memory stays active and serves
/// allocations. Move-only.
class ArenaCore::SaveAhead final : public Step {
public:
    SaveAhead(ArenaCore& core, Turn::Hold turn) : Step{core, std::move(turn)} {
        core.give_up_failed_arrival();
        live_ = core.live_set(core.memories_in(Memory::State::active), "saving");
        const std::lock_guard lock{core.mutex_};
        live_.blocks = [all = std::move(live_.blocks), ranges = live_.extents, last = core.last_serial_] {
            std::vector<LiveBlock> blocks = all(); // later ones are left to the pause
            erase_in(blocks, [&](const LiveBlock& block) {
                return block.serial > last || !covers(ranges, {block.address, block.bytes});
            });
            return blocks;
        };
    }
    SaveAhead(SaveAhead&&) noexcept = default;
    ~SaveAhead() {
        if (core_ == nullptr || !enqueued_) return;
        tickets_.clear(); // nothing would invalidate what it saved, so that may be stale when it is next needed
        core_->own_->outdated();
        core_->unsettle();
    }

    /// Returns whether saved bytes stay valid until they are invalidated. If not, they must not be saved ahead.
    [[nodiscard]] bool able() const noexcept { return core_->own_->saves_once(); }
    [[nodiscard]] bool takes() const noexcept { return !live_.extents.empty(); }
    /// Starts saving the blocks that were live at the beginning. Throws what the policy throws.
    void enqueue() {
        if (!takes()) return;
        begin_copying("save");
        tickets_.reserve(1);
        enqueued_ = true;
        tickets_.push_back(core_->own_->save(live_));
    }

private:
    friend class Arriving;

    LiveSet live_; // the active memory at the beginning
    bool enqueued_ = false;
    Vector<Ticket> tickets_;
};

/// A transfer that continues without the turn. Its states, and who changes them:
///
/// - *under way*: an operation has begun it and given up its turn. Any thread may have streams follow its tickets, wait
///   for them or query them. The next thread that holds the turn settles it: either a thread in `end`, or any other
///   operation (in ArenaCore::take_turn). Between the end of its tickets and the commit, its bytes are here.
/// - *over*: committed, or saving failed.
/// - *failed*: restoring failed. The pages stay mapped, because work may be queued behind the bytes that did arrive.
///   The next pause or resume gives it up: then it is over, and the memory is paused as before.
///
/// So only a thread that holds the turn commits, and the turn is never held without a running thread. Owned jointly by
/// the arena, until it is over, and by the threads that wait for it. May outlive the arena only once it is over.
class ArenaCore::Arriving {
public:
    explicit Arriving(ArenaCore& core) noexcept : core_{core} {}

    // --- callers that hold the turn ---

    /// Makes `arriving` continue the step, whose turn is given up.
    static void begin(const std::shared_ptr<Arriving>& arriving, Resume&& step) noexcept {
        step.becomes_resident(); // a use need not await the bytes, and sees what it does not bring back
        arriving->tickets_.swap(step.tickets());
        arriving->go_on(arriving, arriving->coming_.emplace(std::move(step)));
    }
    static void begin(const std::shared_ptr<Arriving>& arriving, SaveAhead&& step) noexcept {
        arriving->tickets_.swap(step.tickets_);
        arriving->row_ = std::move(step.row_);
        (void)step.core_.release();
        arriving->go_on(arriving, step);
    }
    /// Waits for all bytes and commits. Keeps a failure for `end`. Throws NotIdle once the deadline has passed.
    void settle(const Deadline& deadline) {
        if (!in(State::under_way)) return;
        if (deadline) poll_until(deadline);
        std::exception_ptr failure;
        std::size_t bytes = 0;
        try {
            named([&] { bytes = core_.wait_for(tickets_, coming_ ? "restore bytes" : "save bytes ahead"); });
        } catch (...) {
            failure = std::current_exception();
        }
        span_.end();
        if (failure) {
            for (Ticket& ticket : tickets_) { // all transfers must end, even after a failure
                try {
                    (void)ticket.wait();
                } catch (...) { // the first failure counts
                }
            }
            if (coming_) return set(State::failed, failure);
            core_.unsettle(); // copies may still be in flight after a failure
        }
        end_tickets(failure);
        if (coming_) row_ = coming_->commit();
        (coming_ ? row_.restored_bytes : row_.saved_bytes) = bytes;
        set(State::over, failure);
    }
    /// If it has failed: waits for the device and makes the memory paused as before. Returns the bytes released.
    std::size_t give_up() noexcept {
        if (!in(State::failed)) return 0;
        end_tickets(failure_); // no lock: the turn is held
        const std::size_t released = coming_->undo();
        set(State::over, failure_);
        return released;
    }

    // --- any thread, several at once ---

    /// Returns true if bytes are being restored, false if they are being saved.
    [[nodiscard]] bool brings_back() const noexcept { return coming_.has_value(); }
    [[nodiscard]] bool can_be_joined() noexcept { return coming_ && in(State::under_way); }
    [[nodiscard]] bool failed() noexcept { return in(State::failed); }
    /// Returns whether no transfer is in flight any more, successful or not. Never waits.
    [[nodiscard]] bool done() noexcept {
        const std::shared_lock lock{mutex_};
        for (Ticket& ticket : tickets_) {
            bool done = false;
            if (ticket.query(done).ok() && !done) return false;
        }
        return true;
    }
    /// Makes later work of the stream start after these bytes have arrived. Throws the failure that prevents it.
    void follow(StreamRef stream, Range range) {
        (void)each_ticket("make a stream wait for arriving bytes", range,
                          [&](Ticket& ticket) { return ticket.follow(stream, range); });
    }
    /// As `follow` for all bytes, on behalf of a graph: throws Misuse, beginning with `what`, if they could not be
    /// restored. Returns false if it is over.
    bool follow_all(StreamRef stream, const char* what) {
        if (failed()) {
            misuse(
                {what, ": the bytes of tag ", in_quotes(core_.tag()), " could not be restored; resume it again first"});
        }
        const Range all{0, ~std::size_t{0}};
        return each_ticket(what, all, [&](Ticket& ticket) { return ticket.follow(stream, all); });
    }
    /// Waits until these bytes have arrived. Throws the failure that prevents it.
    void wait_for(Range range) {
        (void)each_ticket("wait for arriving bytes", range, [&](Ticket& ticket) { return ticket.wait_for(range); });
    }
    /// Waits for all bytes, and settles it if no other thread has. Throws the failure that prevented their arrival. The
    /// arena must be alive.
    void end() {
        while (in(State::under_way)) {
            if (core_.finish_arriving() || !in(State::under_way)) continue;
            misuse({"wait for bytes of tag ", in_quotes(core_.tag()), " inside an operation on it"});
        }
        const std::shared_lock lock{mutex_};
        if (failure_) std::rethrow_exception(failure_);
    }
    /// Returns the row of the report. Valid once it is over.
    [[nodiscard]] const TagReport& row() const noexcept { return row_; }
    /// Cancels the copies that are not on their streams yet.
    void cancel() noexcept {
        const std::shared_lock lock{mutex_};
        for (Ticket& ticket : tickets_) ticket.cancel();
    }

private:
    enum class State : unsigned char { under_way, failed, over };

    [[nodiscard]] bool in(State state) noexcept {
        const std::shared_lock lock{mutex_};
        return state_ == state;
    }
    /// Calls `act()` and names the tag in its exceptions. Locks, because several threads may get the same exception
    /// object.
    void named(FunctionRef<void()> act) {
        try {
            act();
        } catch (Error& error) {
            const std::lock_guard lock{naming_};
            if (error.tag() != core_.tag()) name_tag(error, core_.tag());
            throw;
        }
    }
    /// Calls `act(ticket)` for each ticket. Returns false if it is over. Throws the error of the first failure.
    bool each_ticket(const char* what, Range range, FunctionRef<Status(Ticket&)> act) {
        const std::shared_lock lock{mutex_};
        if (tickets_.empty() && failure_) std::rethrow_exception(failure_);
        for (Ticket& ticket : tickets_) {
            named([&] {
                const Status status = act(ticket);
                if (status.ok()) return;
                core_.check_moved(ticket.wait(), what, ticket.bytes()); // the ticket reports the cause
                core_.check_moved(status, what, range.bytes);
            });
        }
        return state_ != State::over;
    }
    void poll_until(const Deadline& deadline) {
        for (Ticket& ticket : tickets_) (void)ticket.wait_for({}); // its executor may wait for this thread
        if (!detail::poll_until(deadline, [&] { return done(); })) {
            not_idle({"tag ", in_quotes(core_.tag()),
                      ": the timeout expired while its bytes were still arriving; nothing has changed"});
        }
    }
    void go_on(std::shared_ptr<Arriving> self, Step& step) noexcept {
        const Turn::Hold given_up{std::move(step.turn_)};
        span_ = std::move(step.copying_);
        core_.set_arriving(std::move(self));
    }
    /// Sets the outcome, `failure` or none, and ends the tickets, once no thread uses them any more. All transfers must
    /// have ended.
    void end_tickets(const std::exception_ptr& failure) noexcept {
        const std::lock_guard lock{mutex_};
        failure_ = failure;
        tickets_.clear();
    }
    void set(State state, const std::exception_ptr& failure) noexcept {
        const std::lock_guard lock{mutex_};
        state_ = state;
        failure_ = failure;
    }

    ArenaCore& core_;
    std::optional<Resume> coming_; // set before it is shared, if bytes are being restored
    Vector<Ticket> tickets_;
    Span span_;
    TagReport row_;
    std::mutex naming_;
    std::shared_mutex mutex_; // guards the tickets, shared by those who use them, and the members below
    State state_ = State::under_way;
    std::exception_ptr failure_;
};

using SaveAheadStep = ArenaCore::SaveAhead;

// --- ArenaCore's methods ---

inline std::shared_ptr<ArenaCore::Arriving> ArenaCore::arriving() noexcept {
    const std::lock_guard lock{mutex_};
    return arriving_;
}

inline bool ArenaCore::coming_back() noexcept {
    const auto coming = arriving();
    return coming != nullptr && coming->brings_back();
}

inline bool ArenaCore::on_its_way() noexcept {
    const auto coming = arriving();
    return coming != nullptr && coming->can_be_joined();
}

inline bool ArenaCore::finish_arriving() noexcept {
    if (forked()) return false;
    const auto coming = arriving();
    if (coming == nullptr || coming->failed()) return false;
    try {
        const auto turn = turn_.take({}, tag_);
        now(Turn::Stage::moves);
        commit_arriving();
        return true;
    } catch (const std::exception&) { // this thread is inside an operation on the tag
        return false;
    }
}

inline void ArenaCore::require_resumed(const char* what, StreamRef stream) {
    require_open(what);
    const auto coming = arriving();
    if (coming != nullptr && coming->brings_back() && coming->follow_all(stream, what)) return;
    const std::lock_guard lock{mutex_};
    bool away = false;
    bool part = false;
    for (const auto& memory : memories_) {
        (memory->state == Memory::State::active ? part : away) |= !memory->extents.empty();
    }
    if (!away) return;
    misuse({what, ": tag ", in_quotes(tag_), part ? " is partly paused" : " is paused", "; resume it first"});
}

inline void ArenaCore::cancel_arriving() noexcept {
    if (const auto coming = arriving()) coming->cancel();
}

inline std::shared_ptr<GateMark> ArenaCore::gate(const void* pointer, std::size_t bytes) {
    const Asked asked{*this, "gate", pointer, bytes, {}, true};
    const LiveBlock block = asked.block();
    std::shared_ptr<GateMark> gate = gates_.add(asked.range(), block.address, block.serial);
    if (const auto coming = arriving(); coming != nullptr && coming->can_be_joined()) {
        coming->follow(gates_.relay(), asked.range());
        check(driver_.record(gate->event.get(), gates_.relay()), "record the event of a gate");
    }
    return gate;
}

inline bool ArenaCore::wait_for_copies(const Deadline& deadline) noexcept {
    if (forked()) return false;
    try {
        if (turn_.wait_for_copies(deadline)) return true;
        const auto hold = turn_.try_take(); // an operation that waits for the program's work is not waited for
        if (!hold || arriving_ == nullptr || arriving_->failed()) return false;
        now(Turn::Stage::moves);
        commit_arriving(deadline);
        return true;
    } catch (...) { // the deadline
        return false;
    }
}

inline void ArenaCore::set_arriving(std::shared_ptr<Arriving> arriving) noexcept {
    const std::lock_guard lock{mutex_};
    arriving_ = std::move(arriving);
}

inline void ArenaCore::commit_arriving(const Deadline& deadline, bool join) {
    const auto coming = arriving_; // no lock: the turn is held
    if (coming == nullptr || (join && coming->can_be_joined() && !coming->done())) return;
    coming->settle(deadline);
    if (!coming->failed()) set_arriving(nullptr);
}

inline Turn::Hold ArenaCore::try_turn() {
    if (closed_.load() || forked()) return {};
    auto hold = turn_.try_take();
    if (!hold || arriving_ == nullptr || arriving_->failed()) return hold;
    if (!arriving_->done()) return {};
    commit_arriving();
    return hold;
}

inline std::size_t ArenaCore::give_up_failed_arrival() noexcept {
    const auto failed = arriving_;
    if (failed == nullptr) return 0;
    const std::size_t released = failed->give_up();
    set_arriving(nullptr);
    return released;
}

inline std::size_t ArenaCore::recover() {
    const std::size_t released = give_up_failed_arrival();
    check_of_tag(settle(), "wait for copies of an earlier operation");
    return released;
}

inline void ArenaCore::await_copies(const Deadline& deadline) {
    if (!deadline) return; // whatever needs it waits
    if (!unsettled_.load() && (arriving_ == nullptr || !arriving_->failed())) return;
    IdleWait device{driver_};
    device.mark_device();
    device.wait(deadline);
}

} // namespace memsaver::inline v0_3::detail
