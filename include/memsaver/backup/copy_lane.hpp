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

namespace memsaver::inline v0_2 {

namespace detail {

/// For as long as it lives, its lane has one more transfer. Null: none.
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

/// Where copies go in order: by the copy engine; or, once `watch` or another transfer has seen it held up, by a kernel
/// on a stream of this lane's own. Any thread, but for `watch`.
class CopyLane {
public:
    /// `given_up`: told before the device is waited for because of a failure; see LiveSet. `to_peer`: between the
    /// device and memory of a peer, instead of the host's. Throws what a failing driver call stands for.
    explicit CopyLane(AnyDriver driver, Direction direction, std::function<void()> given_up = {}, bool to_peer = false);

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

    /// Before anything is enqueued. Whether copies are to be watched: nobody else's are ahead of them, and nothing
    /// waits for the host, behind which a kernel might stand. Where others' are, what they saw holds for this lane too,
    /// for a while: they may live on long after their copies, for as long as nobody waits for them.
    [[nodiscard]] bool to_be_watched() noexcept;
    /// Copies whose end is marked.
    struct Sent {
        EventRef mark;
        std::size_t bytes = 0;
    };
    /// Waits until all that was sent has come, unless the options say that it takes too long: then all that is enqueued
    /// later goes by a kernel. Before there are other threads.
    Status watch(std::span<const Sent> sent, const KernelCopyOptions& options) noexcept;

    /// Enqueues the copies of a piece between the device and `base + (location - origin)` on the other side, and marks
    /// their end. On failure what was enqueued has passed, unless the device is lost. For a kernel the host's pages
    /// must be pinned.
    Status enqueue(const Piece& piece, std::byte* base, std::uint64_t origin, OwnedEvent& mark) const noexcept;

    /// After a failure: nothing may still be under way. Gives up first.
    Status drain() const noexcept;
    /// Tells that the device is about to be waited for.
    void give_up() const noexcept {
        if (given_up_) given_up_();
    }

private:
    static constexpr std::chrono::milliseconds look_again{500};

    Status copy(Address device, std::byte* host, std::size_t bytes, StreamRef stream) const noexcept;
    void take_detour() noexcept;

    AnyDriver driver_;
    Direction direction_;
    bool to_peer_;
    LaneUse use_;
    OwnedStream own_;
    StreamRef stream_;
    OwnedStream detour_; // for copies by a kernel, once there are any
    std::function<void()> given_up_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/copy_lane.ipp"
#endif
