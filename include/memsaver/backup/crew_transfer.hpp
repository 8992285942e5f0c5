// What transfers whose threads take piece after piece have in common: the pieces, those who wait, and the end.
#pragma once

#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/ticket.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Bytes pass through the host, so streams and threads that want a range wait on the host until it has arrived, but not
/// for the rest. A class that derives from it must `join` in its destructor.
class CrewTransfer : public Ticket::Work {
public:
    MEMSAVER_INLINE Status query(bool& done) noexcept override;
    MEMSAVER_INLINE Status wait() override;
    Status follow(StreamRef, Range range) noexcept override { return CrewTransfer::wait_for(range); }
    MEMSAVER_INLINE Status wait_for(Range range) noexcept override;
    void help() noexcept override { crew_.help(); }
    MEMSAVER_INLINE void cancel() noexcept override;

protected:
    CrewTransfer(std::vector<Piece> pieces, const CrewOptions& crew, const ProgressSink& progress);

    /// Starts `work` on at most `workers` threads. If it throws, the transfer ends, and `wait` throws it again.
    void start_crew(std::size_t workers);
    virtual void work() = 0;
    void join() noexcept { crew_.join(); }

    [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }
    /// Sets `i` to the next piece for this thread. Returns false if there is none, or if the transfer has ended.
    bool take(std::size_t& i) noexcept { return (i = next_++) < pieces_.size() && !stopped_.load(); }
    [[nodiscard]] bool all_taken() const noexcept { return stopped_.load() || next_.load() >= pieces_.size(); }
    void arrived(std::size_t i);

private:
    std::vector<Piece> pieces_;
    Progress progress_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    std::mutex mutex_;
    std::condition_variable arrival_;
    std::vector<char> arrived_; // of each piece; guarded by mutex_
    Crew crew_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/crew_transfer.ipp"
#endif
