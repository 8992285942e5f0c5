// The stream on which copies in one direction go: the driver's own lane if it has one.
#pragma once

#include "memsaver/memory/memory.hpp"
#include "memsaver/transfer/piece.hpp"

#include <cstddef>
#include <utility>

namespace memsaver::inline v0_1 {

/// Any thread.
template <Copies D>
class CopyLane {
public:
    /// Throws what a failing driver call stands for.
    CopyLane(D driver, Direction direction) : driver_{std::move(driver)}, direction_{direction} {
        if constexpr (Lanes<D>) {
            check(driver_.lane(direction, stream_), "open a lane for copies");
        } else {
            check(own_.open(driver_), "open a stream for copies");
            stream_ = own_.get();
        }
    }

    [[nodiscard]] const D& driver() const noexcept { return driver_; }
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

    /// Enqueues the copies of a piece between the device and `base + (location - origin)` on the host, and marks their
    /// end. On failure what was enqueued has passed, unless the device is lost.
    Status enqueue(const Piece& piece, std::byte* base, std::uint64_t origin, OwnedEvent<D>& mark) const noexcept {
        Status status = mark.get() ? Status{} : mark.open(driver_, stream_);
        if (!status.ok()) return status;
        status = piece.each_copy([&](const Unit& unit) {
            std::byte* const host = base + (unit.location - origin);
            return direction_ == Direction::out ? driver_.copy_to_host(host, unit.device, unit.bytes, stream_)
                                                : driver_.copy_to_device(unit.device, host, unit.bytes, stream_);
        });
        const Status marked = driver_.record(mark.get(), stream_);
        if (status.ok() && marked.ok()) return status;
        (void)(marked.ok() ? driver_.wait(mark.get()) : driver_.drain());
        return status.ok() ? marked : status;
    }

private:
    D driver_;
    Direction direction_;
    OwnedStream<D> own_;
    StreamRef stream_;
};

} // namespace memsaver::inline v0_1
