// What an operation, or the reuse of a block, waits for.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/handles.hpp"

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace memsaver::inline v0_2 {

/// The tag for "the program knows that no work touches this memory any more": nothing is waited for.
struct AlreadyIdle {
    explicit AlreadyIdle() = default;
};

/// What is written where an AlreadyIdle is taken: `arena.deallocate(p, already_idle)`, `{.order = already_idle}`.
inline constexpr AlreadyIdle already_idle{};

/// What a pause or a trim waits for. By default, all work that every device concerned was given before the call: that
/// wait breaks a stream capture that is open then, so a program that captures meanwhile names its streams.
class Order {
public:
    /// What is waited for.
    enum class Kind : unsigned char {
        device, ///< all work that the devices concerned were given before the call
        after,  ///< what `streams()` were given so far, and `events()`
        idle,   ///< nothing
    };

    Order() = default;
    Order(AlreadyIdle) noexcept : kind_{Kind::idle} {}
    /// As `after(...)`, for lists that are known only when the program runs. Throws Misuse where both are empty.
    [[nodiscard]] static Order after_all(std::vector<StreamRef> streams, std::vector<EventRef> events = {});

    /// What is waited for: by default, the device's work.
    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    /// The streams that `after` was given, in that order; a null one is the default stream. Else empty.
    [[nodiscard]] const std::vector<StreamRef>& streams() const noexcept { return streams_; }
    /// The events that `after` was given, in that order. Else empty.
    [[nodiscard]] const std::vector<EventRef>& events() const noexcept { return events_; }

    template <class... Marks>
    requires(sizeof...(Marks) > 0) friend Order after(const Marks&... marks);

private:
    template <class Mark>
    void add(const Mark& mark) {
        if constexpr (std::convertible_to<const Mark&, StreamRef>) {
            streams_.push_back(mark);
        } else {
            events_.push_back(mark);
        }
    }

    Kind kind_ = Kind::device;
    std::vector<StreamRef> streams_;
    std::vector<EventRef> events_;
};

/// Waits only for what these streams have been given so far, and for these events: they are all, on every device
/// concerned, that may still touch the memory. Takes what converts to StreamRef or EventRef; the default stream is that
/// of every device concerned.
template <class... Marks>
requires(sizeof...(Marks) > 0) Order after(const Marks&... marks) {
    return detail::translated([&] {
        Order order;
        order.kind_ = Order::Kind::after;
        (order.add(marks), ...);
        return order;
    });
}

namespace detail {

/// When patience ends; none: never.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// The one that comes first.
[[nodiscard]] inline Deadline earlier(const Deadline& a, const Deadline& b) noexcept {
    return !a || (b && *b < *a) ? b : a;
}

/// Work that has been submitted, on whatever device: its driver is not named.
class WorkMark {
public:
    WorkMark() = default;
    WorkMark(const WorkMark&) = delete;
    WorkMark& operator=(const WorkMark&) = delete;
    virtual ~WorkMark() = default;

    /// Whether it has passed; never waits.
    virtual Status query(bool& passed) const noexcept = 0;
    virtual Status wait() const noexcept = 0;
};

/// When a freed block may be handed out again: after the device's work so far (the default), after one stream's, after
/// another device's, at once, or never while a graph may be replayed in which it was freed.
struct FreeOrder {
    enum class Kind : unsigned char { device, stream, marked, idle, replayed };
    Kind kind = Kind::device;
    StreamRef stream{};
    /// The graph that replays touch the block for, if it is freed in a capture. 0: one that nobody told of.
    std::uint64_t graph = 0;
    /// For `marked`: work of a stream that the arena's driver cannot be asked about.
    std::shared_ptr<const WorkMark> mark{};
};

/// None if it lies beyond what the clock can tell.
Deadline deadline_after(const std::optional<std::chrono::nanoseconds>& timeout);
/// Until then, at least 0; none: for ever.
std::optional<std::chrono::nanoseconds> time_left(const Deadline& deadline);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/order.ipp"
#endif
