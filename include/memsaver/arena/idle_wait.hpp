// The wait before memory is taken away. Does not know what memory.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/memory/memory.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace memsaver::inline v0_1 {

/// Waits until the work that `order` names has passed on each of `drivers`. Throws NotIdle once the deadline has
/// passed, Misuse for a stream that is being captured, and what a failing driver call stands for. Streams and events
/// that `order` names are asked about through the first driver, whichever device they are of.
template <Streams D>
void wait_until_idle(const std::vector<D>& drivers, const Order& order, const Deadline& deadline) {
    if (order.kind() == Order::Kind::idle || drivers.empty()) return;
    const D& first = drivers.front();
    std::vector<OwnedEvent<D>> owned;
    struct Mark {
        const D* driver;
        EventRef event;
    };
    std::vector<Mark> marks;
    for (const EventRef event : order.events()) marks.push_back({&first, event});
    if (order.kind() == Order::Kind::device) {
        for (const D& driver : drivers) {
            check(owned.emplace_back().open(driver), "open an event");
            check(driver.record_device(owned.back().get()),
                  "wait for the device's work (if a stream capture is open, name the streams: .order = after(...))");
            marks.push_back({&driver, owned.back().get()});
        }
    } else {
        for (const StreamRef stream : order.streams()) {
            bool capturing = false;
            check(first.capturing(stream, capturing), "ask whether a stream is being captured");
            if (capturing)
                throw Misuse{"after(stream): the stream is being captured, so its work cannot be waited for"};
            check(owned.emplace_back().open(first, stream), "open an event");
            check(first.record(owned.back().get(), stream), "record an event");
            marks.push_back({&first, owned.back().get()});
        }
    }

    for (const Mark& mark : marks) {
        if (!deadline) {
            check(mark.driver->wait(mark.event), "wait for an event");
            continue;
        }
        for (auto pause = std::chrono::microseconds{5};; pause = std::min(2 * pause, std::chrono::microseconds{500})) {
            bool passed = false;
            check(mark.driver->query(mark.event, passed), "query an event");
            if (passed) break;
            if (std::chrono::steady_clock::now() >= *deadline) {
                throw NotIdle{"the device was still at work when the time allowed ran out; nothing has changed"};
            }
            std::this_thread::sleep_for(pause);
        }
    }
}

} // namespace memsaver::inline v0_1
