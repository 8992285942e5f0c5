// The wait before memory is taken away. Does not know what memory.
#pragma once

#include "memsaver/arena/for_each_device.hpp"
#include "memsaver/arena/order.hpp"
#include "memsaver/memory/memory.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// What is waited for on one device, and how long that took. Marked first, then waited for.
template <Streams D>
class IdleWait {
public:
    explicit IdleWait(D driver) : driver_{std::move(driver)} {}

    [[nodiscard]] const D& driver() const noexcept { return driver_; }
    [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

    /// An event of the program's.
    void mark(EventRef event) { marks_.push_back(event); }
    /// What the stream has been given so far. Throws Misuse if it is being captured.
    void mark(StreamRef stream) {
        bool capturing = false;
        check(driver_.capturing(stream, capturing), "ask whether a stream is being captured");
        if (capturing) throw Misuse{"after(stream): the stream is being captured, so its work cannot be waited for"};
        check(owned_.emplace_back().open(driver_, stream), "open an event");
        check(driver_.record(owned_.back().get(), stream), "record an event");
        mark(owned_.back().get());
    }
    /// What the whole device has been given so far.
    void mark_device() {
        check(owned_.emplace_back().open(driver_), "open an event");
        check(driver_.record_device(owned_.back().get()),
              "wait for the device's work (if a stream capture is open, name the streams: .order = after(...))");
        mark(owned_.back().get());
    }

    /// Throws NotIdle once the deadline has passed.
    void wait(const Deadline& deadline) {
        const auto start = std::chrono::steady_clock::now();
        for (const EventRef event : marks_) {
            if (deadline) {
                wait_until(event, *deadline);
            } else {
                check(driver_.wait(event), "wait for an event");
            }
        }
        waited_ = std::chrono::steady_clock::now() - start;
    }

private:
    void wait_until(EventRef event, std::chrono::steady_clock::time_point deadline) const {
        for (auto pause = std::chrono::microseconds{5};; pause = std::min(2 * pause, std::chrono::microseconds{500})) {
            bool passed = false;
            check(driver_.query(event, passed), "query an event");
            if (passed) return;
            if (std::chrono::steady_clock::now() >= deadline) {
                throw NotIdle{"device " + std::to_string(driver_.device()) +
                              " was still at work when the time allowed ran out; nothing has changed"};
            }
            std::this_thread::sleep_for(pause);
        }
    }

    D driver_;
    std::vector<OwnedEvent<D>> owned_;
    std::vector<EventRef> marks_;
    std::chrono::nanoseconds waited_{0};
};

/// Whether a stream or an event is of the driver's device. One that cannot tell says no.
template <Streams D>
[[nodiscard]] Status ask_owner(const D& driver, StreamRef stream, bool& yes) noexcept {
    if constexpr (StreamOwners<D>) return driver.owns_stream(stream, yes);
    return {};
}
template <Streams D>
[[nodiscard]] Status ask_owner(const D& driver, EventRef event, bool& yes) noexcept {
    if constexpr (requires { driver.owns_event(event, yes); }) return driver.owns_event(event, yes);
    return {};
}

/// The first of `drivers` that says that a stream or an event is its own; null where none does. A call that fails says
/// nothing: where nobody else says yes, the first failure is `unknown`.
template <Streams D, class Mark>
[[nodiscard]] const D* owner_among(const std::vector<D>& drivers, const Mark& mark, Status& unknown) noexcept {
    for (const D& driver : drivers) {
        bool yes = false;
        const Status status = ask_owner(driver, mark, yes);
        if (status.ok() && yes) return &driver;
        if (unknown.ok()) unknown = status;
    }
    return nullptr;
}

/// Waits until the work that `order` names has passed: each device's at the same time, and answers how long for which.
/// By default that is what each of `drivers` has been given so far. Streams and events that `order` names may also be
/// of `others`, and are asked about through the driver whose they are; if none says so, through the first, which is as
/// good on machines whose devices share one driver. The default stream is that of each of `drivers`. Throws NotIdle
/// once the deadline has passed, Misuse for a stream that is being captured, and what a failing driver call stands for.
template <Streams D>
std::vector<IdleWait<D>> wait_until_idle(const std::vector<D>& drivers, const Order& order, const Deadline& deadline,
                                         const std::vector<D>& others = {}) {
    std::vector<IdleWait<D>> waits;
    if (order.kind() == Order::Kind::idle || drivers.empty()) return waits;
    const auto wait_on = [&](const D& driver) -> IdleWait<D>& {
        for (IdleWait<D>& wait : waits) {
            if (wait.driver() == driver) return wait;
        }
        return waits.emplace_back(driver);
    };
    const auto whose = [&](const auto& mark) -> const D& {
        if (drivers.size() + others.size() == 1) return drivers.front();
        Status unknown;
        for (const std::vector<D>* const some : {&drivers, &others}) {
            if (const D* const owner = owner_among(*some, mark, unknown)) return *owner;
        }
        check(unknown, "ask whose stream or event it is");
        return drivers.front();
    };
    if (order.kind() == Order::Kind::device) {
        for (const D& driver : drivers) wait_on(driver).mark_device();
    }
    for (const EventRef event : order.events()) wait_on(whose(event)).mark(event);
    for (const StreamRef stream : order.streams()) {
        if (stream != StreamRef{}) {
            wait_on(whose(stream)).mark(stream);
            continue;
        }
        for (const D& driver : drivers) wait_on(driver).mark(stream);
    }
    for_each_device(waits, [&](IdleWait<D>& wait) { wait.wait(deadline); });
    return waits;
}

} // namespace memsaver::inline v0_1
