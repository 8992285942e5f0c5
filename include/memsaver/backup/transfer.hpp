// Transfers between the device and a store: pieces, in the order in which they are needed, each moved in some way.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/ring.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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
    virtual Status put(const std::byte* /*from*/, std::uint64_t /*location*/, std::size_t /*bytes*/) const noexcept {
        return {StatusKind::unsupported, 0, "a file source is read-only"};
    }
    virtual Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept = 0;
    /// May throw what says more about a failed `get` than its status.
    virtual void explain(const Status& /*failure*/, std::uint64_t /*location*/) const {}
};

/// Moves pieces on threads that take one after the other. Streams and threads wait for the pieces that they want only.
/// Knows when pieces have arrived, but not how they are moved: its Way does.
class Transfer final : public Ticket::Work {
public:
    /// How the pieces of one transfer are moved.
    class Way {
    public:
        Way() = default;
        Way(const Way&) = delete;
        Way& operator=(const Way&) = delete;
        virtual ~Way() = default;
        /// Returns how many threads are to `work`; 0 if it has put everything on streams, or has failed.
        virtual std::size_t start(Transfer& transfer) = 0;
        /// Takes and moves pieces until there is none. If it throws, the transfer ends, and `wait` throws it again.
        virtual void work(Transfer& transfer) = 0;
    };

    /// `shown`: bytes count as arrived once the way has said so, even if an event marks the end of their copies.
    Transfer(AnyDriver driver, std::vector<Piece> pieces, const CrewOptions& crew, const ProgressSink& progress,
             std::unique_ptr<Way> way, bool shown = false);
    MEMSAVER_INLINE ~Transfer() override;

    /// Throws OutOfHostMemory if it cannot start; nothing is in flight then.
    void start();

    MEMSAVER_INLINE Status query(bool& done) noexcept override;
    MEMSAVER_INLINE Status wait() override;
    MEMSAVER_INLINE Status follow(StreamRef stream, Range range) noexcept override;
    MEMSAVER_INLINE Status wait_for(Range range) noexcept override;
    /// Lives as long as a transfer, and longer than its way.
    struct Companion {
        Companion() = default;
        Companion(const Companion&) = delete;
        Companion& operator=(const Companion&) = delete;
        virtual ~Companion() = default;
        /// Called whenever it is waited for and all bytes have arrived.
        virtual void arrived() {}

        std::unique_ptr<Companion> next;
    };
    void accompany(std::unique_ptr<Companion> companion) noexcept {
        companion->next = std::move(companion_);
        companion_ = std::move(companion);
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return progress_.total(); }
    [[nodiscard]] bool enqueued() const noexcept override { return at_once_; }
    MEMSAVER_INLINE void cancel() noexcept override;

    // For the way.

    [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }
    /// Before any is taken.
    void replace(std::vector<Piece> pieces);
    /// Sets `i` to the next piece for this thread. Returns false if there is none, or if the transfer has ended.
    bool take(std::size_t& i) noexcept { return (i = next_++) < pieces_.size() && !stopped_.load(); }
    [[nodiscard]] bool all_taken() const noexcept { return stopped_.load() || next_.load() >= pieces_.size(); }
    [[nodiscard]] bool stopped() const noexcept { return stopped_.load(); }
    /// Marks the end of a piece's copies, if they go to and from its pages directly.
    [[nodiscard]] OwnedEvent& mark(std::size_t i) noexcept { return marks_[i]; }
    /// The copies of a piece, and its mark, are on their stream.
    void under_way(std::size_t i) { note(i, on_stream); }
    void arrived(std::size_t i);
    void fail(const Status& status) noexcept;
    /// After a failure: waits until nothing is in flight. If that fails too, marks the pages of a piece as unsettled.
    void drain(std::size_t i) noexcept;

private:
    enum State : char { to_come, on_stream, here };

    void note(std::size_t i, State state);
    /// Calls `act(mark)` for every piece with bytes of `range`, as soon as its state is `wanted`, if it has a mark.
    /// Stops at the first failure and returns it.
    Status each_of(Range range, State wanted, FunctionRef<Status(EventRef)> act) noexcept;
    /// Waits for everything that has a mark, and reports the progress.
    void settle() noexcept;

    std::unique_ptr<Companion> companion_; // first: destroyed last
    AnyDriver driver_;
    std::unique_ptr<Way> way_;
    std::vector<Piece> pieces_;
    std::vector<OwnedEvent> marks_; // of each piece
    Progress progress_;
    State wanted_; // of each piece, at the end
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    bool at_once_ = false; // `start` enqueued everything
    bool waited_ = false;
    std::exception_ptr failure_;
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::vector<State> states_; // of each piece
    Status status_;
    Crew crew_; // last: joined before the other members are destroyed
};

/// A transfer of pieces that have pages, which copies reach directly: pinned host pages, or pages of a peer. The
/// locations of their units are addresses in these pages. If all pages are ready, enqueues all copies at once; no
/// thread is needed. Otherwise threads make the pages ready cell by cell and enqueue each cell's copies as they go:
/// copies of earlier cells run, and are shown to the observer, while later cells are being pinned.
///
/// `kernel_copies`: when copies use a kernel. `refused`: called, on any thread, whenever host pages cannot be
/// pinned; the copies then run anyway, but slowly.
std::unique_ptr<Transfer> direct_transfer(CopyLane lane, std::vector<Piece> pieces, const CrewOptions& crew,
                                          PieceObserver* observer, const ProgressSink& progress,
                                          std::function<void()> refused = {},
                                          const std::function<Status(Range)>& before_write = {},
                                          const KernelCopyOptions& kernel_copies = {});

/// A transfer through a few pinned buffers, of pieces that lie in cells of `ring->buffer_bytes()`. Copies into the
/// device reach pieces that have pages directly. The store must outlive it. `whose` is for error messages.
std::unique_ptr<Transfer> staged_transfer(CopyLane lane, std::vector<Piece> pieces, const ByteStore& store,
                                          std::shared_ptr<Ring> ring, const CrewOptions& crew, PieceObserver* observer,
                                          const ProgressSink& progress, const std::string& whose = {},
                                          const std::function<Status(Range)>& before_write = {});

/// Allocates what a staged transfer of these pieces needs. Throws OutOfHostMemory.
void prepare_ring(Ring& ring, const std::vector<Piece>& pieces, std::size_t alignment, const std::string& whose);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/transfer.ipp"
#endif
