// Bytes between the device and a place that copies do not reach: through a few pinned buffers.
#pragma once

#include "memsaver/transfer/copy_lane.hpp"
#include "memsaver/transfer/crew.hpp"
#include "memsaver/transfer/progress.hpp"
#include "memsaver/transfer/ticket.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// A place that keeps bytes. Any thread; different bytes at the same time.
///
/// - `put(from, location, bytes)`, `get(to, location, bytes)`: whole multiples of `S::alignment`.
template <class S>
concept ByteStore = requires(const S& store, const std::byte* from, std::byte* to, std::uint64_t location,
                             std::size_t n) {
    { store.put(from, location, n) }
    noexcept->std::same_as<Status>;
    { store.get(to, location, n) }
    noexcept->std::same_as<Status>;
    { S::alignment } -> std::convertible_to<std::size_t>;
};

/// The buffers: two for each thread, so that one is on the link while the other is being stored. Made when first used.
template <HostPages D>
class Ring {
public:
    /// Buffers of at most 32 MiB, of which `limit_bytes` hold at least two.
    Ring(D driver, std::size_t limit_bytes, unsigned threads)
        : driver_{std::move(driver)}, buffer_bytes_{std::max<std::size_t>(
                                          2_MiB, std::min<std::size_t>(32_MiB, std::bit_floor(limit_bytes / 2)))},
          pairs_(std::clamp<std::size_t>(limit_bytes / (2 * buffer_bytes_), 1, std::max(1U, threads))) {}

    using Pair = std::array<PinnedBuffer<D>, 2>;

    [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    [[nodiscard]] std::size_t pairs() const noexcept { return pairs_.size(); }
    /// One thread's buffers. Throws OutOfHostMemory.
    Pair& pair(std::size_t index) {
        for (PinnedBuffer<D>& buffer : pairs_[index]) {
            if (!buffer.owns()) buffer = PinnedBuffer<D>{driver_, buffer_bytes_};
        }
        return pairs_[index];
    }
    void clear() noexcept {
        for (Pair& pair : pairs_) pair = {};
    }

private:
    D driver_;
    std::size_t buffer_bytes_;
    std::vector<Pair> pairs_;
};

/// Pieces lie in cells of `ring->buffer_bytes()`. A ring serves one transfer at a time. The store outlives the
/// transfer.
template <class D, ByteStore Store>
requires Copies<D> && HostPages<D>
class RingTransfer final : public Ticket::Work {
public:
    RingTransfer(CopyLane<D> lane, std::vector<Piece> pieces, const Store& store, std::shared_ptr<Ring<D>> ring,
                 CrewOptions crew, PieceObserver* observer, ProgressSink progress)
        : lane_{std::move(lane)}, pieces_{std::move(pieces)},
          arrived_(pieces_.size(), false), store_{&store}, ring_{std::move(ring)}, observer_{observer},
          progress_{std::move(progress), bytes_of(pieces_)}, crew_{std::move(crew)} {}

    ~RingTransfer() override { crew_.join(); }

    void start() {
        if (pieces_.empty()) return;
        crew_.start(std::min(ring_->pairs(), pieces_.size()), [this] { work(); });
    }

    Status query(bool& done) noexcept override {
        done = crew_.done();
        return {};
    }
    Status wait() override {
        crew_.join();
        if (const auto failure = crew_.failure()) std::rethrow_exception(failure);
        return {};
    }
    /// The bytes pass through this host's hands, so it waits here until they have arrived; not for the rest.
    Status follow(StreamRef, Range range) noexcept override {
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const bool wanted = std::any_of(pieces_[i].units.begin(), pieces_[i].units.end(), [&](const Unit& unit) {
                return unit.device < range.end() && range.address < unit.device + unit.bytes;
            });
            std::unique_lock lock{mutex_};
            if (wanted) arrival_.wait(lock, [&] { return arrived_[i] || crew_.done() || stopped_.load(); });
            if (wanted && !arrived_[i]) return {StatusKind::other, 0, "the transfer failed before these bytes came"};
        }
        return {};
    }

private:
    static std::size_t bytes_of(const std::vector<Piece>& pieces) {
        std::size_t sum = 0;
        for (const Piece& piece : pieces) sum += piece.bytes();
        return sum;
    }

    /// One buffer in use: a piece on its way to it, or from it.
    struct Slot {
        PinnedBuffer<D>* buffer = nullptr;
        OwnedEvent<D> mark;
        std::size_t piece = 0;
        bool busy = false;
    };

    void work() {
        auto& pair = ring_->pair(next_pair_++);
        std::array<Slot, 2> slots;
        slots[0].buffer = &pair[0];
        slots[1].buffer = &pair[1];
        try {
            std::size_t turn = 0;
            for (std::size_t i = next_++; i < pieces_.size() && !stopped_.load(); i = next_++, turn ^= 1U) {
                finish(slots[turn]);
                begin(slots[turn], i);
            }
            finish(slots[turn]);
            finish(slots[turn ^ 1U]);
        } catch (...) {
            for (Slot& slot : slots) {
                if (slot.busy) (void)lane_.driver().wait(slot.mark.get()); // the buffer may be used again
            }
            stopped_ = true;
            const std::lock_guard lock{mutex_};
            arrival_.notify_all();
            throw;
        }
    }

    void begin(Slot& slot, std::size_t index) {
        const Piece& piece = pieces_[index];
        std::byte* const data = slot.buffer->data();
        if (lane_.direction() == Direction::in) {
            each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
                check(store_->get(at, location, bytes), "read bytes back from where they were kept", bytes, 0);
            });
            if (observer_ != nullptr) {
                for (const Unit& unit : piece.units) observer_->restoring(unit, data + (unit.location - origin(piece)));
            }
        }
        check(lane_.enqueue(piece, data, origin(piece), slot.mark), "copy bytes", piece.bytes(),
              piece.units.front().device);
        slot.piece = index;
        slot.busy = true;
    }

    void finish(Slot& slot) {
        if (!slot.busy) return;
        check(lane_.driver().wait(slot.mark.get()), "wait for a copy");
        slot.busy = false;
        const Piece& piece = pieces_[slot.piece];
        if (lane_.direction() == Direction::out) {
            std::byte* const data = slot.buffer->data();
            if (observer_ != nullptr) {
                for (const Unit& unit : piece.units) observer_->saved(unit, data + (unit.location - origin(piece)));
            }
            each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
                check(store_->put(at, location, bytes), "write bytes to where they are kept", bytes, 0);
            });
        }
        progress_.add(piece.bytes());
        const std::lock_guard lock{mutex_};
        arrived_[slot.piece] = true;
        arrival_.notify_all();
    }

    static std::uint64_t origin(const Piece& piece) noexcept {
        return piece.location() - piece.location() % Store::alignment;
    }
    /// `act(buffer, location, bytes)` for each row of neighbours in the store, in whole multiples of its alignment:
    /// what pads a row belongs to its last block.
    template <class Act>
    static void each_run(const Piece& piece, std::byte* data, Act&& act) {
        for (std::size_t i = 0; i < piece.units.size();) {
            const std::uint64_t begin = piece.units[i].location;
            std::uint64_t end = begin;
            for (; i < piece.units.size() && piece.units[i].location == end; ++i) {
                end = align_up(piece.units[i].location + piece.units[i].bytes, Store::alignment);
            }
            act(data + (begin - origin(piece)), begin, static_cast<std::size_t>(end - begin));
        }
    }

    CopyLane<D> lane_;
    std::vector<Piece> pieces_;
    std::vector<bool> arrived_; // guarded by the mutex
    const Store* store_;
    std::shared_ptr<Ring<D>> ring_;
    PieceObserver* observer_;
    Progress progress_;
    std::mutex mutex_;
    std::condition_variable arrival_;
    std::atomic<std::size_t> next_{0};
    std::atomic<std::size_t> next_pair_{0};
    std::atomic<bool> stopped_{false};
    Crew crew_; // last: it is joined before the rest dies
};

} // namespace memsaver::inline v0_1
