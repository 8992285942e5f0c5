// Work that a stream or an event stands for, marked once and asked later. Does not know what waits for it.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/driver/owned.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// The work that a stream of some driver's device has been given so far, or what an event of the program's marks. The
/// program's stream and event may go as soon as this is made.
class StreamMark final : public WorkMark {
public:
    /// Throws what a failing driver call stands for.
    StreamMark(AnyDriver driver, StreamRef stream) : driver_{std::move(driver)} {
        check(event_.open(driver_, stream), "open an event");
        check(driver_.record(event_.get(), stream), "record an event");
    }
    StreamMark(AnyDriver driver, EventRef event) : driver_{std::move(driver)} {
        check(relay_.open(driver_), "open a stream");
        check(event_.open(driver_, relay_.get()), "open an event");
        check(driver_.follow(relay_.get(), event), "have a stream wait for an event");
        check(driver_.record(event_.get(), relay_.get()), "record an event");
    }

    Status query(bool& passed) const noexcept override { return driver_.query(event_.get(), passed); }
    Status wait() const noexcept override { return driver_.wait(event_.get()); }

private:
    AnyDriver driver_;
    OwnedStream relay_; // of an event: closed later than what was recorded in it
    OwnedEvent event_;
};

/// Several of them: passes once all have.
class AllMarks final : public WorkMark {
public:
    explicit AllMarks(std::vector<std::unique_ptr<const WorkMark>> marks) : marks_{std::move(marks)} {}

    Status query(bool& passed) const noexcept override {
        passed = true;
        for (const auto& mark : marks_) {
            const Status status = passed ? mark->query(passed) : Status{};
            if (!status.ok()) return status;
        }
        return {};
    }
    Status wait() const noexcept override {
        for (const auto& mark : marks_) {
            if (const Status status = mark->wait(); !status.ok()) return status;
        }
        return {};
    }

private:
    std::vector<std::unique_ptr<const WorkMark>> marks_;
};

} // namespace detail

} // namespace memsaver::inline v0_2
