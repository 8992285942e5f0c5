// Bytes between the device and host pages that copies reach directly.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/driver/host_memory.hpp"

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Where all host pages are ready, the copies are enqueued at once and go by themselves. Where not, a crew readies them
/// cell by cell and enqueues each cell's copies as it goes: copies of earlier cells run while later ones are pinned,
/// and are shown to the observer.
class PinnedTransfer final : public Ticket::Work {
public:
    /// A piece and the host pages that it lies in; its units' locations are host addresses.
    struct Cargo {
        Piece piece;
        std::shared_ptr<HostRegion> region;
    };

    /// `refused` is called, once, on any thread, if host pages cannot be pinned: the copies go all the same, but
    /// slowly.
    PinnedTransfer(CopyLane lane, std::vector<Cargo> cargo, CrewOptions crew, PieceObserver* observer,
                   ProgressSink progress, std::function<void()> refused = {});

    MEMSAVER_INLINE ~PinnedTransfer() override;

    /// Starts. Throws OutOfHostMemory if not even that can be done; then nothing is under way.
    void start();

    MEMSAVER_INLINE Status query(bool& done) noexcept override;

    MEMSAVER_INLINE Status wait() override;

    MEMSAVER_INLINE Status follow(StreamRef stream, Range range) noexcept override;

private:
    static std::size_t bytes_of(const std::vector<Cargo>& cargo);

    void work();
    /// Shows a piece to the observer once it is there.
    void show_saved(std::size_t i);
    void show(const Cargo& cargo, void (PieceObserver::*see)(const Unit&, const std::byte*));
    Status enqueue(std::size_t i) noexcept;
    /// After a failure: nothing may still be under way. Where that cannot be waited for either, the host pages know.
    void drain(std::size_t i) noexcept;
    void fail(const Status& status) noexcept;

    /// Waits for everything that was enqueued, and tells how far it has come.
    void settle() noexcept;

    CopyLane lane_;
    std::vector<Cargo> cargo_;
    std::vector<OwnedEvent> marks_; // of each cargo
    PieceObserver* observer_;
    Progress progress_;
    std::function<void()> refused_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    std::atomic<bool> pin_refused_{false};
    bool waited_ = false;
    Status status_;
    std::exception_ptr failure_;
    Crew crew_; // last: it is joined before the rest dies
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/pinned_transfer.ipp"
#endif
