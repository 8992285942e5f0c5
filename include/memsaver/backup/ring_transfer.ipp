// Definitions of ring_transfer.hpp.
#pragma once

#include "memsaver/backup/ring_transfer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::size_t buffer_bytes_of(const Piece& piece, std::size_t alignment) noexcept {
    const Unit& last = piece.units.back();
    return align_up(last.location + last.bytes, alignment) - align_down(piece.location(), alignment);
}

/// Returns the most bytes that one of these pieces needs, in steps, so that a slightly larger one fits too.
MEMSAVER_INLINE std::size_t most_bytes(const std::vector<Piece>& pieces, std::size_t alignment) noexcept {
    std::size_t most = 0;
    for (const Piece& piece : pieces) most = std::max(most, buffer_bytes_of(piece, alignment));
    return align_up(most, 64_KiB);
}

MEMSAVER_INLINE void prepare_ring(Ring& ring, const std::vector<Piece>& pieces, std::size_t alignment,
                                  const std::string& whose) {
    if (!pieces.empty()) ring.prepare(pieces.size(), most_bytes(pieces, alignment), whose);
}

MEMSAVER_INLINE RingTransfer::RingTransfer(CopyLane lane, std::vector<Piece> pieces, const ByteStore& store,
                                           std::shared_ptr<Ring> ring, const CrewOptions& crew, PieceObserver* observer,
                                           const ProgressSink& progress, const std::string& whose,
                                           const std::function<Status(Range)>& before_write)
    : CrewTransfer{std::move(pieces), crew, progress}, lane_{std::move(lane)}, store_{&store}, ring_{std::move(ring)},
      observer_{observer}, error_prefix_{whose}, most_bytes_{most_bytes(this->pieces(), store.alignment())},
      before_write_{before_write} {}

MEMSAVER_INLINE void RingTransfer::start() {
    if (pieces().empty()) return;
    if (lane_.direction() == Direction::in) ring_->settle(error_prefix_); // here: the crew must not wait for the device
    start_crew(std::min(ring_->pairs(), pieces().size()));
}

MEMSAVER_INLINE void RingTransfer::work() {
    Ring::Loan loan{*ring_};
    std::array<InFlight, 2> in_flight;
    const auto take_buffer = [&](std::size_t which) {
        if (in_flight[which].buffer != nullptr) return true;
        try {
            in_flight[which].buffer = &loan.buffer(which, most_bytes_, error_prefix_);
            moving_ += which == 0 ? 1U : 0U;
        } catch (const OutOfHostMemory&) { // those who have a buffer do the work
            if (moving_.load() == 0) throw;
        }
        return in_flight[which].buffer != nullptr;
    };
    try {
        if (!take_buffer(0)) return;
        std::size_t other = ring_->each(pieces().size()) - 1;
        std::size_t turn = 0;
        for (std::size_t i = 0; take(i); turn ^= other) {
            if (!take_buffer(turn)) turn = other = 0;
            finish(in_flight[turn]);
            begin(in_flight[turn], i);
        }
        finish(in_flight[turn]);
        finish(in_flight[turn ^ 1U]);
    } catch (...) {
        for (InFlight& moving : in_flight) {
            if (moving.busy && !lane_.driver().wait(moving.mark.get()).ok()) drain(moving);
        }
        throw;
    }
}

MEMSAVER_INLINE void RingTransfer::begin(InFlight& moving, std::size_t index) {
    const Piece& piece = pieces()[index];
    std::byte* const data = moving.buffer->data();
    if (lane_.direction() == Direction::in) {
        each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
            check_of(piece, store_->get(at, location, bytes), "read bytes from the backup");
        });
        if (observer_ != nullptr) {
            for (const Unit& unit : piece.units) observer_->restoring(unit, data + (unit.location - origin(piece)));
        }
    }
    if (before_write_ && lane_.direction() == Direction::in) {
        const Status may = piece.each_copy([&](const Unit& unit) {
            return before_write_(Range{unit.device, unit.bytes});
        });
        check_of(piece, may, "wait for the save of the previous bytes");
    }
    const Status enqueued = lane_.enqueue(piece, data, origin(piece), moving.mark);
    if (!enqueued.ok()) drain(moving);
    check_of(piece, enqueued, "copy bytes");
    moving.piece = index;
    moving.busy = true;
}

MEMSAVER_INLINE void RingTransfer::drain(InFlight& moving) noexcept {
    const Status drained = lane_.drain();
    if (!drained.ok() && drained.kind != StatusKind::gone) moving.buffer->unsettle();
}

MEMSAVER_INLINE void RingTransfer::finish(InFlight& moving) {
    if (!moving.busy) return;
    const Piece& piece = pieces()[moving.piece];
    check_of(piece, lane_.driver().wait(moving.mark.get()), "wait for a copy");
    moving.busy = false;
    if (lane_.direction() == Direction::out) {
        std::byte* const data = moving.buffer->data();
        if (observer_ != nullptr) {
            for (const Unit& unit : piece.units) observer_->saved(unit, data + (unit.location - origin(piece)));
        }
        for (const Unit& unit : piece.units) { // zero the padding, so that it is always the same
            const std::uint64_t end = unit.location + unit.bytes;
            std::memset(data + (first_of(unit) - origin(piece)), 0, unit.location - first_of(unit));
            std::memset(data + (end - origin(piece)), 0, align_up(end, store_->alignment()) - end);
        }
        each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
            check_of(piece, store_->put(at, location, bytes), "write bytes to the backup");
        });
    }
    arrived(moving.piece);
}

MEMSAVER_INLINE void RingTransfer::check_of(const Piece& piece, const Status& status, const Attempt& attempt) const {
    if (status.ok()) return;
    raise_of(status, attempt,
             {error_prefix_, in_bytes(piece.bytes()), " from ", in_hex(piece.units.front().device), " onward"},
             piece.bytes());
}

} // namespace detail

} // namespace memsaver::inline v0_3
