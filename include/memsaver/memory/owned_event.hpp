// The owner of one event.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns an event, or nothing. Move-only; closes it when it dies.
template <Streams D>
class OwnedEvent {
public:
    OwnedEvent() = default;
    OwnedEvent(OwnedEvent&& other) noexcept { swap(other); }
    OwnedEvent& operator=(OwnedEvent&& other) noexcept {
        OwnedEvent{std::move(other)}.swap(*this);
        return *this;
    }
    ~OwnedEvent() {
        if (driver_) (void)driver_->close_event(event_);
    }

    /// Opens an event on the device of `near` into an empty `*this`.
    Status open(const D& driver, StreamRef near = {}) noexcept {
        EventRef event;
        const Status status = driver.open_event(near, event);
        if (!status.ok()) return status;
        driver_ = driver;
        event_ = event;
        return status;
    }

    [[nodiscard]] EventRef get() const noexcept { return event_; }

private:
    void swap(OwnedEvent& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(event_, other.event_);
    }

    std::optional<D> driver_;
    EventRef event_;
};

} // namespace memsaver::inline v0_1
