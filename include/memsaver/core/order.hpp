// What an operation, or the reuse of a freed block, waits for.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/time_limit.hpp"

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace memsaver::inline v0_3 {

/// The program's assertion that no work touches the memory any more: the operation waits for nothing.
struct AlreadyIdle {
    explicit AlreadyIdle() = default;
};

/// The value to pass as an AlreadyIdle: `arena.deallocate(p, already_idle)`, `{.order = already_idle}`.
inline constexpr AlreadyIdle already_idle{};

/// What a pause or a trim waits for. By default, it waits for all work submitted to every device concerned before the
/// call. That wait breaks any open stream capture, so a program that captures at the same time names its streams.
class Order {
public:
    /// What the operation waits for.
    enum class Kind : unsigned char {
        device, ///< all work submitted to the devices concerned before the call
        after,  ///< the work submitted to `streams()` so far, and `events()`
        idle,   ///< nothing
    };

    Order() = default;
    Order(AlreadyIdle) noexcept : kind_{Kind::idle} {}
    /// Like `after(...)`, for lists built at run time. Throws Misuse if both lists are empty.
    [[nodiscard]] static Order after_all(std::vector<StreamRef> streams, std::vector<EventRef> events = {});

    /// What the operation waits for; `Kind::device` by default.
    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    /// The streams passed to `after`, in order; a null stream is the default stream. Empty for other kinds.
    [[nodiscard]] const std::vector<StreamRef>& streams() const noexcept { return streams_; }
    /// The events passed to `after`, in order. Empty for other kinds.
    [[nodiscard]] const std::vector<EventRef>& events() const noexcept { return events_; }

    template <class... Marks>
    requires(sizeof...(Marks) > 0) friend Order after(const Marks&... marks);

private:
    template <class Mark>
    void add(const Mark& mark) {
        if constexpr (std::convertible_to<const Mark&, StreamRef>) {
            streams_.push_back(mark);
        } else {
            add_event(mark);
        }
    }

    void add_event(EventRef event);

    Kind kind_ = Kind::device;
    std::vector<StreamRef> streams_;
    std::vector<EventRef> events_;
};

/// Waits only for the work submitted to these streams so far, and for these events. The caller guarantees that no other
/// work on any device concerned touches the memory. Accepts arguments that convert to StreamRef or EventRef; the
/// default stream means the default stream of every device concerned.
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

/// The end of a timeout; empty means never.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// The earlier of two deadlines.
[[nodiscard]] inline Deadline earlier(const Deadline& a, const Deadline& b) noexcept {
    return !a || (b && *b < *a) ? b : a;
}

[[nodiscard]] inline bool over(const Deadline& deadline) noexcept {
    return deadline && std::chrono::steady_clock::now() >= *deadline;
}

/// Work submitted to any device, without reference to its driver.
class WorkMark {
public:
    WorkMark& operator=(WorkMark&&) = delete;
    virtual ~WorkMark() = default;

    /// Sets `passed` to whether the work has completed. Never waits.
    virtual Status query(bool& passed) const noexcept = 0;
    virtual Status wait() const noexcept = 0;
};

/// When a freed block may be reused: after all work submitted to the device so far (the default), after one stream's
/// work, at once, or never while a graph in which it was freed may be replayed.
struct FreeOrder {
    enum class Kind : unsigned char { device, stream, idle, replayed };
    Kind kind = Kind::device;
    StreamRef stream{};
    /// For elastic memory that is released `after(...)`: the work to wait for instead of the device's.
    std::shared_ptr<const WorkMark> mark{};
};

/// The deadline for a limit that starts now, now itself if it is negative. Empty, which means never, if it is unset or
/// longer than half the clock's range: a deadline may be moved by a time that passed.
Deadline deadline_after(const TimeLimit& limit);
/// Calls `passed()`, at ever longer intervals, until it returns true. Returns false once the deadline has passed.
bool poll_until(const Deadline& deadline, FunctionRef<bool()> passed);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/order.ipp"
#endif
