// The streams on which the library copies.
#pragma once

#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/driver/owned.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// Counts one transfer on a lane for as long as this object lives. Null: no lane.
class LaneUse {
public:
    explicit LaneUse(Neighbours::Lane* lane) noexcept : lane_{lane} {
        if (lane_ != nullptr) lane_->transfers.fetch_add(1);
    }
    LaneUse(LaneUse&& other) noexcept : lane_{std::exchange(other.lane_, nullptr)} {}
    LaneUse& operator=(LaneUse&&) = delete;
    ~LaneUse() {
        if (lane_ != nullptr) lane_->transfers.fetch_sub(1);
    }
    [[nodiscard]] Neighbours::Lane* lane() const noexcept { return lane_; }

private:
    Neighbours::Lane* lane_;
};

/// Enqueues copies in order. Copies use the copy engine; once `watch` or another transfer has found the engine slow,
/// they use a kernel on a stream of this object. Thread-safe, except `watch`.
class CopyLane {
public:
    /// `to_peer`: copies between the
    /// device and memory of a peer, not the host. Throws the exception for a failing driver call.
    explicit CopyLane(AnyDriver driver, Direction direction, bool to_peer = false);

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

    /// Returns whether the first copies should be watched: no other transfer uses the lane. Call before enqueuing
    /// anything. If another transfer uses the lane, this one adopts its result, but only for `look_again`: a transfer
    /// may exist long after its copies completed, until somebody waits for it.
    [[nodiscard]] bool to_be_watched() noexcept;
    /// Copies whose end is marked by an event.
    struct Sent {
        EventRef mark;
        std::size_t bytes = 0;
    };
    /// Waits until all of `sent` has completed, or until the options say that it takes too long. In that case
    /// everything enqueued later is copied by a kernel. Call before other threads use the object.
    Status watch(std::span<const Sent> sent, const KernelCopyOptions& options) noexcept;

    /// Enqueues the copies of a piece between the device and `base + (location - origin)` on the other side, and
    /// records `mark` after them. If it fails, what was enqueued has completed, unless the device is lost. For copies
    /// by a kernel the host pages must be pinned.
    Status enqueue(const Piece& piece, std::byte* base, std::uint64_t origin, OwnedEvent& mark) const noexcept;

    /// After a failure: waits until no work is in flight on the device.
    Status drain() const noexcept { return driver_.drain(); }

private:
    static constexpr std::chrono::milliseconds look_again{500};

    Status copy(Address device, std::byte* host, std::size_t bytes, StreamRef stream) const noexcept;
    void switch_to_kernel() noexcept;

    AnyDriver driver_;
    Direction direction_;
    bool to_peer_;
    LaneUse use_;
    OwnedStream own_;
    StreamRef stream_;
    OwnedStream kernel_stream_; // for copies by a kernel; opened on first use
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/copy_lane.ipp"
#endif
