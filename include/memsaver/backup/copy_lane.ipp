// Definitions of copy_lane.hpp.
#pragma once

#include "memsaver/backup/copy_lane.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE CopyLane::CopyLane(AnyDriver driver, Direction direction, std::function<void()> given_up, bool to_peer)
    : driver_{std::move(driver)}, direction_{direction}, to_peer_{to_peer}, given_up_{std::move(given_up)} {
    const Status lane = driver_.lane(direction, stream_);
    if (lane.kind == StatusKind::unsupported) {
        check(own_.open(driver_), "open a stream for copies");
        stream_ = own_.get();
    } else {
        check(lane, "open a lane for copies");
    }
}

MEMSAVER_INLINE Status CopyLane::enqueue(const Piece& piece, std::byte* base, std::uint64_t origin,
                                         OwnedEvent& mark) const noexcept {
    Status status = mark.get() ? Status{} : mark.open(driver_, stream_);
    if (!status.ok()) return status;
    status = piece.each_copy([&](const Unit& unit) {
        std::byte* const host = base + (unit.location - origin);
        if (to_peer_) {
            const auto peer = reinterpret_cast<Address>(host);
            return direction_ == Direction::out ? driver_.copy_peer(peer, unit.device, unit.bytes, stream_)
                                                : driver_.copy_peer(unit.device, peer, unit.bytes, stream_);
        }
        return direction_ == Direction::out ? driver_.copy_to_host(host, unit.device, unit.bytes, stream_)
                                            : driver_.copy_to_device(unit.device, host, unit.bytes, stream_);
    });
    const Status marked = driver_.record(mark.get(), stream_);
    if (status.ok() && marked.ok()) return status;
    (void)(marked.ok() ? driver_.wait(mark.get()) : drain());
    return status.ok() ? marked : status;
}

MEMSAVER_INLINE Status CopyLane::drain() const noexcept {
    give_up();
    return driver_.drain();
}

} // namespace detail

} // namespace memsaver::inline v0_2
