// Bytes between the device and pages that copies reach directly: the host's, or a peer's.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/host_memory.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Where all host pages are ready, the copies are enqueued at once and go by themselves. Where not, a crew readies them
/// cell by cell and enqueues each cell's copies as it goes: copies of earlier cells run while later ones are pinned,
/// and are shown to the observer.
class PinnedTransfer final : public Ticket::Work {
public:
    /// A piece and the pages that it lies in; its units' locations are their addresses.
    struct Cargo {
        Piece piece;
        std::shared_ptr<CopyablePages> region;
    };

    /// `kernel_copies`: when the copies are to go by a kernel. `refused` is called, once, on any thread, if host pages
    /// cannot be pinned: the copies go all the same, but slowly.
    PinnedTransfer(CopyLane lane, std::vector<Cargo> cargo, CrewOptions crew, PieceObserver* observer,
                   ProgressSink progress, std::function<void()> refused = {},
                   std::function<Status(Range)> before_write = {}, const KernelCopyOptions& kernel_copies = {});

    MEMSAVER_INLINE ~PinnedTransfer() override;

    /// Starts. Throws OutOfHostMemory if not even that can be done; then nothing is under way.
    void start();

    MEMSAVER_INLINE Status query(bool& done) noexcept override;

    MEMSAVER_INLINE Status wait() override;

    MEMSAVER_INLINE Status follow(StreamRef stream, Range range) noexcept override;

    MEMSAVER_INLINE Status wait_for(Range range) override;

    [[nodiscard]] bool enqueued() const noexcept override { return at_once_; }

    [[nodiscard]] MEMSAVER_INLINE std::size_t place(Range range) const noexcept override;

    void help() noexcept override { crew_.help(); }
    MEMSAVER_INLINE void cancel() noexcept override;

private:
    static std::size_t bytes_of(const std::vector<Cargo>& cargo);

    /// The most that is sent ahead to see how it comes: more than an engine that takes turns copies in one of them.
    static constexpr std::size_t most_ahead = 64_MiB;
    static constexpr std::size_t parts_ahead = 4;

    /// Sends the first bytes ahead, if the copies are to be watched. Answers how many cargos that were.
    std::size_t send_ahead(Status& status);
    /// Cuts the first cargos into smaller ones until so many bytes begin the row. Answers how many these are.
    std::size_t cut_first(std::size_t bytes, std::size_t step);
    void work();
    void move_all();
    /// Shows a piece to the observer once it is there.
    void show_saved(std::size_t i);
    void show(const Cargo& cargo, void (PieceObserver::*see)(const Unit&, const std::byte*));
    /// May throw what `before_write` throws.
    Status enqueue(std::size_t i);
    /// After a failure: nothing may still be under way. Where that cannot be waited for either, the host pages know.
    void drain(std::size_t i) noexcept;
    /// `act(i)` for every cargo with bytes of `range`, once `so_far` says that it is so far. Stops at the first answer
    /// that is not ok, and answers that.
    Status each_of(Range range, const std::vector<bool>& so_far, FunctionRef<Status(std::size_t)> act);
    void fail(const Status& status) noexcept;

    /// Waits for everything that was enqueued, and tells how far it has come.
    void settle() noexcept;

    CopyLane lane_;
    std::vector<Cargo> cargo_;
    std::vector<OwnedEvent> marks_; // of each cargo
    PieceObserver* observer_;
    Progress progress_;
    std::function<void()> refused_;
    std::function<Status(Range)> before_write_;
    KernelCopyOptions kernel_copies_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    std::atomic<bool> pin_refused_{false};
    std::atomic<bool> readies_kernel_{false}; // one of the crew does, for transfers to come
    bool at_once_ = false;                    // all was enqueued by `start`
    bool waited_ = false;
    std::exception_ptr failure_;
    std::mutex mutex_; // over what follows
    std::condition_variable changed_;
    std::vector<bool> under_way_; // of each cargo: its copies are on their stream
    std::vector<bool> shown_;     // of each cargo: it has been saved, and the observer has seen it
    Status status_;
    Crew crew_; // last: it is joined before the rest dies
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/pinned_transfer.ipp"
#endif
