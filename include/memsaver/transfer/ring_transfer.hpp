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
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
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
/// Transfers that run at the same time share them: who finds none free waits.
template <HostPages D>
class Ring {
public:
    static constexpr std::size_t least_buffer = 2_MiB;

    /// Buffers of 2 MiB to `largest_buffer`: two for each of so many threads, or for fewer where `limit_bytes` hold no
    /// more.
    Ring(D driver, std::size_t limit_bytes, unsigned threads, std::size_t largest_buffer)
        : driver_{std::move(driver)},
          buffer_bytes_{
              std::max(least_buffer, std::min(largest_buffer,
                                              std::bit_floor(limit_bytes / (2 * std::max<std::size_t>(1, threads)))))},
          pairs_(std::clamp<std::size_t>(limit_bytes / (2 * buffer_bytes_), 1, std::max(1U, threads))),
          lent_(pairs_.size(), false) {}

    using Pair = std::array<PinnedBuffer<D>, 2>;

    /// One thread's buffers, for as long as it needs them.
    class Loan {
    public:
        explicit Loan(Ring& ring) : ring_{ring}, index_{ring.lend()} {}
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
        ~Loan() { ring_.take_back(index_); }
        /// `whose` is for the text of errors. Throws OutOfHostMemory.
        Pair& pair(const std::string& whose = {}) { return ring_.made(index_, whose); }

    private:
        Ring& ring_;
        std::size_t index_;
    };

    [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    [[nodiscard]] std::size_t pairs() const noexcept { return pairs_.size(); }
    /// Makes the buffers that a transfer of `pieces` pieces uses, while none runs. Throws OutOfHostMemory.
    void prepare(std::size_t pieces, const std::string& whose = {}) {
        for (std::size_t i = 0; i < std::min(pieces, pairs_.size()); ++i) (void)made(i, whose);
    }
    /// Gives the buffers back, while no transfer runs. Answers the first failure; what is left is used again, or tried
    /// again by the next call.
    Status clear() noexcept {
        Status first;
        for (Pair& pair : pairs_) {
            for (PinnedBuffer<D>& buffer : pair) {
                if (const Status status = buffer.release(); first.ok()) first = status;
            }
        }
        return first;
    }

private:
    std::size_t lend() {
        std::unique_lock lock{mutex_};
        auto free = lent_.end();
        came_back_.wait(lock, [&] {
            free = std::find(lent_.begin(), lent_.end(), false);
            return free != lent_.end();
        });
        *free = true;
        return static_cast<std::size_t>(free - lent_.begin());
    }
    void take_back(std::size_t index) noexcept {
        const std::lock_guard lock{mutex_};
        lent_[index] = false;
        came_back_.notify_one();
    }
    Pair& made(std::size_t index, const std::string& whose) {
        for (PinnedBuffer<D>& buffer : pairs_[index]) {
            const Status status = buffer.take(driver_, buffer_bytes_);
            if (!status.ok())
                raise(status, "take a buffer for bytes on their way", whose + format_bytes(buffer_bytes_));
        }
        return pairs_[index];
    }

    D driver_;
    std::size_t buffer_bytes_;
    std::vector<Pair> pairs_;
    std::vector<bool> lent_; // guarded by the mutex
    std::mutex mutex_;
    std::condition_variable came_back_;
};

/// Pieces lie in cells of `ring->buffer_bytes()`. The store outlives the transfer. `whose` is for the text of errors.
template <class D, ByteStore Store>
requires Copies<D> && HostPages<D>
class RingTransfer final : public Ticket::Work {
public:
    RingTransfer(CopyLane<D> lane, std::vector<Piece> pieces, const Store& store, std::shared_ptr<Ring<D>> ring,
                 CrewOptions crew, PieceObserver* observer, ProgressSink progress, std::string whose = {})
        : lane_{std::move(lane)}, pieces_{std::move(pieces)},
          arrived_(pieces_.size(), false), store_{&store}, ring_{std::move(ring)}, observer_{observer},
          progress_{std::move(progress), bytes_of(pieces_)}, whose_{std::move(whose)}, crew_{std::move(crew)} {}

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
        typename Ring<D>::Loan loan{*ring_};
        std::array<Slot, 2> slots;
        try {
            auto& pair = loan.pair(whose_);
            slots[0].buffer = &pair[0];
            slots[1].buffer = &pair[1];
            std::size_t turn = 0;
            for (std::size_t i = next_++; i < pieces_.size() && !stopped_.load(); i = next_++, turn ^= 1U) {
                finish(slots[turn]);
                begin(slots[turn], i);
            }
            finish(slots[turn]);
            finish(slots[turn ^ 1U]);
        } catch (...) {
            for (Slot& slot : slots) {
                if (slot.busy && !lane_.driver().wait(slot.mark.get()).ok()) drain(slot);
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
                check_of(piece, store_->get(at, location, bytes), "read bytes back from where they were kept");
            });
            if (observer_ != nullptr) {
                for (const Unit& unit : piece.units) observer_->restoring(unit, data + (unit.location - origin(piece)));
            }
        }
        const Status enqueued = lane_.enqueue(piece, data, origin(piece), slot.mark);
        if (!enqueued.ok()) drain(slot);
        check_of(piece, enqueued, "copy bytes");
        slot.piece = index;
        slot.busy = true;
    }

    /// After a failure: the buffer may be used again, so nothing may still be under way. Where that cannot be waited
    /// for either, the buffer knows.
    void drain(Slot& slot) noexcept {
        const Status drained = lane_.driver().drain();
        if (!drained.ok() && drained.kind != StatusKind::gone) slot.buffer->unsettle();
    }

    void finish(Slot& slot) {
        if (!slot.busy) return;
        const Piece& piece = pieces_[slot.piece];
        check_of(piece, lane_.driver().wait(slot.mark.get()), "wait for a copy");
        slot.busy = false;
        if (lane_.direction() == Direction::out) {
            std::byte* const data = slot.buffer->data();
            if (observer_ != nullptr) {
                for (const Unit& unit : piece.units) observer_->saved(unit, data + (unit.location - origin(piece)));
            }
            for (const Unit& unit : piece.units) { // what pads a block is always the same
                const std::uint64_t end = unit.location + unit.bytes;
                std::memset(data + (first_of(unit) - origin(piece)), 0, unit.location - first_of(unit));
                std::memset(data + (end - origin(piece)), 0, align_up(end, Store::alignment) - end);
            }
            each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
                check_of(piece, store_->put(at, location, bytes), "write bytes to where they are kept");
            });
        }
        progress_.add(piece.bytes());
        const std::lock_guard lock{mutex_};
        arrived_[slot.piece] = true;
        arrival_.notify_all();
    }

    /// Throws what a status stands for, with the bytes concerned in the text.
    void check_of(const Piece& piece, const Status& status, const Attempt& attempt) const {
        if (status.ok()) return;
        raise(status, attempt,
              whose_ + format_bytes(piece.bytes()) + " from " + format_address(piece.units.front().device) + " on",
              piece.bytes());
    }
    static std::uint64_t first_of(const Unit& unit) noexcept { return align_down(unit.location, Store::alignment); }
    static std::uint64_t origin(const Piece& piece) noexcept { return first_of(piece.units.front()); }
    /// `act(buffer, location, bytes)` for each row of neighbours in the store, in whole multiples of its alignment:
    /// what pads a block belongs to it.
    template <class Act>
    static void each_run(const Piece& piece, std::byte* data, Act&& act) {
        for (std::size_t i = 0; i < piece.units.size();) {
            const std::uint64_t begin = first_of(piece.units[i]);
            std::uint64_t end = begin;
            for (; i < piece.units.size() && first_of(piece.units[i]) == end; ++i) {
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
    std::string whose_;
    std::mutex mutex_;
    std::condition_variable arrival_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    Crew crew_; // last: it is joined before the rest dies
};

} // namespace memsaver::inline v0_1
