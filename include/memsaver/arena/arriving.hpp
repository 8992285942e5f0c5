// Bytes of one arena that are on their way while no operation has its turn: coming back after a resume that did not
// wait for them, or being saved ahead of a pause. Does not know tags, nor who wants the bytes.
#pragma once

#include "memsaver/arena/arena_core.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Begun by construction, then: wait for the device, `idle`, `enqueue`; then an Arriving goes on with it. What is
/// dropped before that has changed nothing. The memory stays active, and serves allocations. Move-only.
class ArenaCore::SaveAhead {
public:
    SaveAhead(ArenaCore& core, Turn::Hold turn);
    SaveAhead(SaveAhead&& other) noexcept;
    SaveAhead& operator=(SaveAhead&&) = delete;
    ~SaveAhead();

    [[nodiscard]] const AnyDriver& driver() const noexcept { return core_->driver(); }
    [[nodiscard]] const std::string& tag() const noexcept { return core_->tag(); }
    /// Whether what the policy saves is good until it is invalidated; else it must not be saved ahead.
    [[nodiscard]] bool able() const noexcept { return able_; }
    [[nodiscard]] bool takes() const noexcept { return !ranges_.empty(); }
    void idle(std::chrono::nanoseconds waited, bool /*whole_device*/) noexcept { waited_ = waited; }
    /// Starts saving the blocks that live now. Throws what the policy throws.
    void enqueue();

private:
    friend class Arriving;

    Turn::Hold turn_;
    ArenaCore* core_;
    bool able_;
    std::vector<Range> ranges_;         // of active memory, sorted
    std::vector<std::uint64_t> living_; // serials of the blocks in it when it began, sorted
    bool enqueued_ = false;             // and nobody's yet
    Ticket ticket_;
    Span saving_;
    std::chrono::nanoseconds waited_{0};
};

/// What goes on by itself, and who ends it:
///
///     begun by an operation, which gives its turn up           under way
///       any thread follows, waits for and asks its tickets     (Use: they live so long)
///       whoever has the turn next settles it                   over: committed; or failed: it could not be brought
///       back
///         `end` of whoever wants it, and every other operation (ArenaCore::take_turn)
///     failed: its pages stay mapped, for work may be queued behind what did arrive
///       the next pause or resume gives it up                   over: as paused as before
///
/// So nothing is committed but by a thread that has the turn, and no turn is held while nobody runs. Shared by the
/// arena, until it is over, and by those who want it. Outlives the arena only when it is over.
class ArenaCore::Arriving {
public:
    explicit Arriving(ArenaCore& core);
    Arriving(const Arriving&) = delete;
    Arriving& operator=(const Arriving&) = delete;

    // --- by who has the turn ---

    /// What it is from now on. The step's turn is given up.
    static void begin(const std::shared_ptr<Arriving>& arriving, Resume&& coming) noexcept;
    static void begin(const std::shared_ptr<Arriving>& arriving, SaveAhead&& saving) noexcept;
    /// Waits for all bytes, and commits. What fails is kept for `end`. Throws NotIdle once the deadline has passed.
    void settle(const Deadline& deadline);
    /// If it has failed: the memory is as paused as before, once the device has passed it.
    void give_up() noexcept;

    // --- any thread, several at once ---

    /// The bytes come back; else they are saved.
    [[nodiscard]] bool brings_back() const noexcept { return coming_back_; }
    [[nodiscard]] bool can_be_joined() noexcept { return coming_back_ && in(State::under_way); }
    [[nodiscard]] bool failed() noexcept { return in(State::failed); }
    /// Whether nothing is on its way any more, whatever came of it. Never waits.
    [[nodiscard]] bool done() noexcept;
    /// Makes later work of the stream start after these bytes have arrived. Throws what keeps them from it.
    void follow(StreamRef stream, Range range);
    /// The same of all bytes, for a graph: throws Misuse, beginning with `what`, if they could not be brought. False if
    /// it is over.
    bool follow_all(StreamRef stream, const char* what);
    /// Waits until these bytes have arrived. Throws what keeps them from it.
    void wait_for(Range range);
    /// Waits for all bytes, and settles it if nobody else has. Throws what kept them from arriving. While the arena
    /// lives.
    void end();
    /// What it did. Once it is over.
    [[nodiscard]] const TagReport& row() const noexcept { return row_; }
    /// What is not on its streams yet need not go.
    void cancel() noexcept;

private:
    enum class State : unsigned char { under_way, failed, over };
    class Use;

    [[nodiscard]] bool in(State state) noexcept;
    [[nodiscard]] std::vector<Ticket>& tickets() noexcept { return coming_ ? coming_->tickets() : saving_; }
    /// What `act()` throws names the tag; it may be the same object for several threads.
    template <class Act>
    void named(Act&& act);
    /// `act(ticket)` for each, while they live; answers whether they did. Throws what the first failure stands for.
    template <class Act>
    bool each_ticket(const char* what, Range range, Act&& act);
    void poll_until(const Deadline& deadline);
    void wait_for_all();
    /// Nothing moves any more, and nobody uses the tickets: it is as good as over, with this failure or none.
    void shut_out(const std::exception_ptr& failure) noexcept;
    void finish(State state, std::exception_ptr failure) noexcept;
    void throw_failure();

    ArenaCore& core_;
    bool coming_back_ = false; // set before anybody sees it
    std::optional<Resume> coming_;
    std::vector<Ticket> saving_;
    Span span_;
    TagReport row_;
    std::mutex mutex_; // guards what follows
    std::condition_variable changed_;
    State state_ = State::under_way;
    bool shut_ = false;
    std::size_t uses_ = 0;
    std::exception_ptr failure_;
};

using SaveAheadStep = ArenaCore::SaveAhead;

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arriving.ipp"
#endif
