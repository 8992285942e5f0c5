// Transfers between the device and pages that copies reach directly: pinned host pages, or pages of a peer device.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/host_cells.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// If all host pages are ready, enqueues all copies at once; no thread is needed. Otherwise the threads of a crew make
/// the pages ready cell by cell and enqueue each cell's copies as they go: copies of earlier cells run, and are shown
/// to the observer, while later cells are being pinned.
class PinnedTransfer final : public Ticket::Work {
public:
    /// A piece and the pages that hold it. The locations of its units are addresses in these pages.
    struct PinnedPiece {
        Piece piece;
        std::shared_ptr<CopyablePages> region;
    };

    /// `kernel_copies`: when copies use a kernel. `refused`: called once, on any thread, if host pages cannot be
    /// pinned; the copies then run anyway, but slowly.
    PinnedTransfer(CopyLane lane, std::vector<PinnedPiece> cargo, const CrewOptions& crew, PieceObserver* observer,
                   const ProgressSink& progress, std::function<void()> refused = {},
                   const std::function<Status(Range)>& before_write = {}, const KernelCopyOptions& kernel_copies = {});

    MEMSAVER_INLINE ~PinnedTransfer() override;

    /// Starts the transfer. Throws OutOfHostMemory if it cannot start; nothing is in flight then.
    void start();

    MEMSAVER_INLINE Status query(bool& done) noexcept override;

    MEMSAVER_INLINE Status wait() override;

    MEMSAVER_INLINE Status follow(StreamRef stream, Range range) noexcept override;

    MEMSAVER_INLINE Status wait_for(Range range) override;

    [[nodiscard]] bool enqueued() const noexcept override { return at_once_; }

    void help() noexcept override { crew_.help(); }
    MEMSAVER_INLINE void cancel() noexcept override;

private:
    static std::size_t bytes_of(const std::vector<PinnedPiece>& cargo);

    /// Limit of the probe. It exceeds what a copy engine that is also clearing memory copies in one turn.
    static constexpr std::size_t most_ahead = 64_MiB;
    static constexpr std::size_t parts_ahead = 4;

    /// Enqueues the first bytes as a probe, if the copies are to be watched. Returns how many cargos it enqueued.
    std::size_t send_ahead(Status& status);
    /// Cuts the first cargos into parts of at most `step` bytes, until the parts hold `bytes` bytes. Returns their
    /// number.
    std::size_t cut_first(std::size_t bytes, std::size_t step);
    void work();
    void move_all();
    /// Shows a piece to the observer once it is saved.
    void show_saved(std::size_t i);
    void show(const PinnedPiece& cargo, void (PieceObserver::*see)(const Unit&, const std::byte*));
    /// May throw what `before_write` throws.
    Status enqueue(std::size_t i);
    /// After a failure: waits until nothing is in flight. If that fails too, marks the host pages as unsettled.
    void drain(std::size_t i) noexcept;
    /// Calls `act(i)` for every cargo with bytes of `range`, as soon as `so_far[i]` is true. Stops at the first failure
    /// and returns it.
    Status each_of(Range range, const std::vector<char>& so_far, FunctionRef<Status(std::size_t)> act);
    void fail(const Status& status) noexcept;

    /// Waits for everything that was enqueued, and reports the progress.
    void settle() noexcept;

    CopyLane lane_;
    std::vector<PinnedPiece> cargo_;
    std::vector<OwnedEvent> marks_; // of each cargo
    PieceObserver* observer_;
    Progress progress_;
    std::function<void()> refused_;
    std::function<Status(Range)> before_write_;
    KernelCopyOptions kernel_copies_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    std::atomic<bool> pin_refused_{false};
    std::atomic<bool> readies_kernel_{false}; // one thread of the crew loads the kernel, for later transfers
    bool at_once_ = false;                    // `start` enqueued everything
    bool waited_ = false;
    std::exception_ptr failure_;
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::vector<char> under_way_; // of each cargo: its copies are on their stream
    std::vector<char> shown_;     // of each cargo: it is saved, and the observer has seen it
    Status status_;
    Crew crew_; // last: joined before the other members are destroyed
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/pinned_transfer.ipp"
#endif
