// Marks of submitted work, which can be queried and waited for. Knows nothing about their users.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/driver/owned.hpp"

#include <utility>

namespace memsaver::inline v0_3::detail {

/// Marks the work submitted to a stream so far, or the work before an event of the program. The program may close the
/// stream or event once this object is constructed.
class StreamMark final : public WorkMark {
public:
    /// Throws the exception for a failed driver call.
    StreamMark(AnyDriver driver, StreamRef stream) : driver_{std::move(driver)} {
        check(event_.open(driver_, stream), "open an event");
        check(driver_.record(event_.get(), stream), "record an event");
    }
    StreamMark(AnyDriver driver, EventRef event) : driver_{std::move(driver)} {
        check(relay_.open(driver_), "open a stream");
        check(event_.open(driver_, relay_.get()), "open an event");
        check(driver_.follow(relay_.get(), event), "make a stream wait for an event");
        check(driver_.record(event_.get(), relay_.get()), "record an event");
    }

    Status query(bool& passed) const noexcept override { return driver_.query(event_.get(), passed); }
    Status wait() const noexcept override { return driver_.wait(event_.get()); }

private:
    AnyDriver driver_;
    OwnedStream relay_; // used for events; closed after the event that is recorded in it
    OwnedEvent event_;
};

} // namespace memsaver::inline v0_3::detail
