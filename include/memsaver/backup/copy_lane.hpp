// The streams on which the library copies and fills.
#pragma once

#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

/// Any thread.
class CopyLane {
public:
    /// Throws what a failing driver call stands for.
    CopyLane(AnyDriver driver, Direction direction);

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

    /// Enqueues the copies of a piece between the device and `base + (location - origin)` on the host, and marks their
    /// end. On failure what was enqueued has passed, unless the device is lost.
    Status enqueue(const Piece& piece, std::byte* base, std::uint64_t origin, OwnedEvent& mark) const noexcept;

private:
    AnyDriver driver_;
    Direction direction_;
    OwnedStream own_;
    StreamRef stream_;
};

/// A stream and what has been put on it. One thread at a time.
class Lane {
public:
    explicit Lane(AnyDriver driver) : driver_{std::move(driver)} {}

    /// Enqueues a fill of every range with `byte`. Throws what a failing call stands for; what was enqueued before the
    /// failure has passed by then.
    Ticket fill(std::span<const Range> ranges, unsigned char byte);

private:
    struct Mark final : Ticket::Work {
        explicit Mark(AnyDriver on) : driver{std::move(on)} {}
        Status query(bool& done) noexcept override { return driver.query(event.get(), done); }
        Status wait() noexcept override { return driver.wait(event.get()); }
        Status follow(StreamRef stream, Range) noexcept override { return driver.follow(stream, event.get()); }

        AnyDriver driver;
        OwnedEvent event;
    };

    AnyDriver driver_;
    OwnedStream stream_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/copy_lane.ipp"
#endif
