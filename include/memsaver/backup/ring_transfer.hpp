// Transfers between the device and storage that copies cannot reach, through a few pinned buffers.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew_transfer.hpp"
#include "memsaver/driver/ring.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Keeps bytes at locations. Thread-safe for different bytes.
class ByteStore {
public:
    ByteStore() = default;
    ByteStore(const ByteStore&) = delete;
    ByteStore& operator=(const ByteStore&) = delete;
    virtual ~ByteStore() = default;

    /// Returns the alignment of locations and sizes, a power of two.
    [[nodiscard]] virtual std::size_t alignment() const noexcept = 0;
    virtual Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept = 0;
    virtual Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept = 0;
};

/// Returns the size of the buffer that a piece passes through, in storage with this alignment.
std::size_t buffer_bytes_of(const Piece& piece, std::size_t alignment) noexcept;
/// Allocates what a transfer of these pieces needs. Throws OutOfHostMemory.
void prepare_ring(Ring& ring, const std::vector<Piece>& pieces, std::size_t alignment, const std::string& whose);

/// Copies pieces, which lie in cells of `ring->buffer_bytes()`. The store must outlive the transfer. `whose` is for
/// error messages.
class RingTransfer final : public CrewTransfer {
public:
    RingTransfer(CopyLane lane, std::vector<Piece> pieces, const ByteStore& store, std::shared_ptr<Ring> ring,
                 const CrewOptions& crew, PieceObserver* observer, const ProgressSink& progress,
                 const std::string& whose = {}, const std::function<Status(Range)>& before_write = {});

    ~RingTransfer() override { join(); }

    void start();

private:
    /// One buffer and the piece in flight to or from it.
    struct InFlight {
        PinnedBuffer* buffer = nullptr;
        OwnedEvent mark;
        std::size_t piece = 0;
        bool busy = false;
    };

    MEMSAVER_INLINE void work() override;

    void begin(InFlight& moving, std::size_t index);

    /// After a failure: waits until nothing is in flight, because the buffer may be reused. If that fails too, marks
    /// the buffer as unsettled.
    void drain(InFlight& moving) noexcept;

    void finish(InFlight& moving);

    /// Throws the exception for a failed status, with the bytes concerned in the message.
    void check_of(const Piece& piece, const Status& status, const Attempt& attempt) const;
    [[nodiscard]] std::uint64_t first_of(const Unit& unit) const noexcept {
        return align_down(unit.location, store_->alignment());
    }
    [[nodiscard]] std::uint64_t origin(const Piece& piece) const noexcept { return first_of(piece.units.front()); }
    /// Calls `act(buffer, location, bytes)` for each run of adjacent units in the store. Runs are whole multiples of
    /// the store's alignment: a block's padding belongs to it.
    template <class Act>
    void each_run(const Piece& piece, std::byte* data, Act&& act) const {
        for (std::size_t i = 0; i < piece.units.size();) {
            const std::uint64_t begin = first_of(piece.units[i]);
            std::uint64_t end = begin;
            for (; i < piece.units.size() && first_of(piece.units[i]) == end; ++i) {
                end = align_up(piece.units[i].location + piece.units[i].bytes, store_->alignment());
            }
            act(data + (begin - origin(piece)), begin, static_cast<std::size_t>(end - begin));
        }
    }

    CopyLane lane_;
    const ByteStore* store_;
    std::shared_ptr<Ring> ring_;
    PieceObserver* observer_;
    std::string error_prefix_;
    std::size_t most_bytes_; ///< of a buffer
    std::function<Status(Range)> before_write_;
    std::atomic<unsigned> moving_{0}; ///< threads that have a buffer
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/ring_transfer.ipp"
#endif
