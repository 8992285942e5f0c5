// Definitions of crew_transfer.hpp.
#pragma once

#include "memsaver/backup/crew_transfer.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE CrewTransfer::CrewTransfer(std::vector<Piece> pieces, const CrewOptions& crew,
                                           const ProgressSink& progress)
    : pieces_{std::move(pieces)}, progress_{progress, bytes_of(pieces_)}, arrived_(pieces_.size(), 0), crew_{crew} {}

MEMSAVER_INLINE void CrewTransfer::start_crew(std::size_t workers) {
    if (pieces_.empty()) return;
    crew_.start(workers, [this] {
        try {
            work();
        } catch (...) {
            CrewTransfer::cancel();
            throw;
        }
    });
}

MEMSAVER_INLINE Status CrewTransfer::query(bool& done) noexcept {
    done = crew_.done();
    return {};
}

MEMSAVER_INLINE Status CrewTransfer::wait() {
    crew_.join();
    if (const auto failure = crew_.failure()) std::rethrow_exception(failure);
    const std::lock_guard lock{mutex_};
    const bool all = !is_in(arrived_, 0);
    return all ? Status{} : Status{StatusKind::other, 0, "the transfer was canceled"};
}

MEMSAVER_INLINE Status CrewTransfer::wait_for(Range range) noexcept {
    crew_.help();
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        if (!pieces_[i].holds(range)) continue;
        std::unique_lock lock{mutex_};
        arrival_.wait(lock, [&] { return arrived_[i] || crew_.done() || stopped_.load(); });
        if (!arrived_[i]) return {StatusKind::other, 0, "the transfer failed before these bytes arrived"};
    }
    return {};
}

MEMSAVER_INLINE void CrewTransfer::cancel() noexcept {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    arrival_.notify_all();
}

MEMSAVER_INLINE void CrewTransfer::arrived(std::size_t i) {
    progress_.add(pieces_[i].bytes());
    const std::lock_guard lock{mutex_};
    arrived_[i] = 1;
    arrival_.notify_all();
}

} // namespace detail

} // namespace memsaver::inline v0_3
