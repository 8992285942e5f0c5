// Bytes of one arena that are in flight while no operation holds its turn: being restored after a resume that did not
// wait for them, or being saved ahead of a pause. Knows nothing about tags or about the users of the bytes.
#pragma once

#include "memsaver/arena/operations.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// One save ahead of a pause, in steps. The constructor begins it; then: wait for the device, `idle`, `enqueue`; after
/// that an Arriving takes over. Destroying it before that changes nothing. The memory stays active and serves
/// allocations. Move-only.
class ArenaCore::SaveAhead final : public Step {
public:
    SaveAhead(ArenaCore& core, Turn::Hold turn);
    SaveAhead(SaveAhead&&) noexcept = default;
    ~SaveAhead();

    /// Returns whether saved bytes stay valid until they are invalidated. If not, they must not be saved ahead.
    [[nodiscard]] bool able() const noexcept { return able_; }
    [[nodiscard]] bool takes() const noexcept { return !ranges_.empty(); }
    /// Starts saving the blocks that are live now. Throws what the policy throws.
    void enqueue();

private:
    friend class Arriving;

    bool able_;
    std::vector<Memory*> memories_;     // active
    std::vector<Range> ranges_;         // theirs at the beginning, sorted
    std::vector<std::uint64_t> living_; // serial numbers of the blocks that were live at the beginning, sorted
    bool enqueued_ = false;             // and not yet passed to an Arriving
    Ticket ticket_;
    Span saving_;
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
    explicit Arriving(ArenaCore& core);
    Arriving(const Arriving&) = delete;
    Arriving& operator=(const Arriving&) = delete;

    // --- callers that hold the turn ---

    /// Makes `arriving` continue the step, whose turn is given up.
    static void begin(const std::shared_ptr<Arriving>& arriving, Resume&& coming) noexcept;
    static void begin(const std::shared_ptr<Arriving>& arriving, SaveAhead&& saving) noexcept;
    /// Waits for all bytes and commits. Keeps a failure for `end`. Throws NotIdle once the deadline has passed.
    void settle(const Deadline& deadline);
    /// If it has failed: waits for the device and makes the memory paused as before.
    void give_up() noexcept;

    // --- any thread, several at once ---

    /// Returns true if bytes are being restored, false if they are being saved.
    [[nodiscard]] bool brings_back() const noexcept { return coming_back_; }
    [[nodiscard]] bool can_be_joined() noexcept { return coming_back_ && in(State::under_way); }
    [[nodiscard]] bool failed() noexcept { return in(State::failed); }
    /// Returns whether no transfer is in flight any more, successful or not. Never waits.
    [[nodiscard]] bool done() noexcept;
    /// Makes later work of the stream start after these bytes have arrived. Throws the failure that prevents it.
    void follow(StreamRef stream, Range range) {
        (void)each_ticket("make a stream wait for arriving bytes", range,
                          [&](Ticket& ticket) { return ticket.follow(stream, range); });
    }
    /// As `follow` for all bytes, on behalf of a graph: throws Misuse, beginning with `what`, if they could not be
    /// restored. Returns false if it is over.
    bool follow_all(StreamRef stream, const char* what);
    /// Waits until these bytes have arrived. Throws the failure that prevents it.
    void wait_for(Range range) {
        (void)each_ticket("wait for arriving bytes", range, [&](Ticket& ticket) { return ticket.wait_for(range); });
    }
    /// Waits for all bytes, and settles it if no other thread has. Throws the failure that prevented their arrival. The
    /// arena must be alive.
    void end();
    /// Returns the row of the report. Valid once it is over.
    [[nodiscard]] const TagReport& row() const noexcept { return row_; }
    /// Cancels the copies that are not on their streams yet.
    void cancel() noexcept;

private:
    enum class State : unsigned char { under_way, failed, over };

    [[nodiscard]] bool in(State state) noexcept;
    [[nodiscard]] std::vector<Ticket>& tickets() noexcept { return coming_ ? coming_->tickets() : saving_; }
    /// Calls `act()` and names the tag in its exceptions. Locks, because several threads may get the same exception
    /// object.
    void named(FunctionRef<void()> act);
    /// Calls `act(ticket)` for each ticket. Returns false if it is over. Throws the error of the first failure.
    bool each_ticket(const char* what, Range range, FunctionRef<Status(Ticket&)> act);
    void poll_until(const Deadline& deadline);
    void wait_for_all();
    /// Sets the outcome, `failure` or none, and ends the tickets, once no thread uses them any more. All transfers must
    /// have ended. Returns the resume, to be committed or given up.
    std::optional<Resume> take(const std::exception_ptr& failure) noexcept;
    void finish(State state, const std::exception_ptr& failure) noexcept;

    ArenaCore& core_;
    bool coming_back_ = false; // set before it is shared
    std::optional<Resume> coming_;
    std::vector<Ticket> saving_;
    Span span_;
    TagReport row_;
    std::mutex naming_;
    std::shared_mutex mutex_; // guards the tickets, shared by those who use them, and the members below
    State state_ = State::under_way;
    std::exception_ptr failure_;
};

using SaveAheadStep = ArenaCore::SaveAhead;

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arriving.ipp"
#endif
