// Definitions of order.hpp.
#pragma once

#include "memsaver/core/order.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Order Order::after_all(std::vector<StreamRef> streams, std::vector<EventRef> events) {
    if (streams.empty() && events.empty())
        detail::misuse({"the order lists no stream and no CUDA event; pass at least one"});
    Order order;
    order.kind_ = Kind::after;
    order.streams_ = std::move(streams);
    for (const EventRef event : events) order.add_event(event);
    return order;
}

MEMSAVER_INLINE void Order::add_event(EventRef event) {
    if (!event) detail::misuse({"after(event): the event is null"});
    events_.push_back(event);
}

namespace detail {

MEMSAVER_INLINE Deadline deadline_after(const TimeLimit& limit) {
    using Clock = std::chrono::steady_clock;
    if (!limit || *limit >= std::chrono::nanoseconds::max() / 2) return {};
    return Clock::now() + std::max(*limit, std::chrono::nanoseconds{0});
}

MEMSAVER_INLINE bool poll_until(const Deadline& deadline, FunctionRef<bool()> passed) {
    for (auto pause = std::chrono::microseconds{5}; !passed();
         pause = std::min(2 * pause, std::chrono::microseconds{500})) {
        if (deadline && std::chrono::steady_clock::now() >= *deadline) return false;
        std::this_thread::sleep_for(pause);
    }
    return true;
}

} // namespace detail

} // namespace memsaver::inline v0_3
