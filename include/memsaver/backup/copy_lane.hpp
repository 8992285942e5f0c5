// The streams on which the library copies and fills.
#pragma once

#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace memsaver::inline v0_2 {

namespace detail {

/// Any thread.
class CopyLane {
public:
    /// `given_up`: told before the device is waited for because of a failure; see LiveSet. `to_peer`: between the
    /// device and memory of a peer, instead of the host's. Throws what a failing driver call stands for.
    explicit CopyLane(AnyDriver driver, Direction direction, std::function<void()> given_up = {}, bool to_peer = false);

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

    /// Enqueues the copies of a piece between the device and `base + (location - origin)` on the other side, and marks
    /// their end. On failure what was enqueued has passed, unless the device is lost.
    Status enqueue(const Piece& piece, std::byte* base, std::uint64_t origin, OwnedEvent& mark) const noexcept;

    /// After a failure: nothing may still be under way. Gives up first.
    Status drain() const noexcept;
    /// Tells that the device is about to be waited for.
    void give_up() const noexcept {
        if (given_up_) given_up_();
    }

private:
    AnyDriver driver_;
    Direction direction_;
    bool to_peer_;
    OwnedStream own_;
    StreamRef stream_;
    std::function<void()> given_up_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/copy_lane.ipp"
#endif
