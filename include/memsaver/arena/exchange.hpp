// Runs pauses and resumes against each other: pages are handed over, and copies run in both directions at once.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/core/function_ref.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Tracks which pages are handed over from which pause to which resume, and how far their bytes have been saved.
///
///     pause   |  A: 1 GiB  |  B: 1 GiB  | C: 2 MiB |          saved piece by piece, mapped here until the end
///                   |            |           `-> released
///     resume  |  A: 1 GiB  |  B: 1 GiB  | new: 512 MiB |      mapped here too: a piece is restored once the old
///                                                             bytes in its place have been saved
///
/// Only whole handles are handed over, between equal drivers; the largest that fits comes first. If not all of a save
/// is on its streams yet (host pages are still being allocated, or bytes go through a ring), the rest of a page may
/// still fail to be saved, so a page is written to only once all of it is saved; otherwise once the piece is. So after
/// a failure, each page is either unchanged or was saved as a whole.
class Handover {
public:
    /// Plans, and maps the pages that are handed over at their new addresses. Throws the error of a failing driver
    /// call, and std::bad_alloc; then the resumes must be dropped, and nothing else has changed.
    Handover(std::vector<PauseStep>& out, std::vector<ResumeStep>& in);
    Handover(const Handover&) = delete;
    Handover& operator=(const Handover&) = delete;

    /// Returns the bytes of a device that are released because no resume can use them as they are.
    [[nodiscard]] std::size_t left_over(const AnyDriver& driver) const noexcept;

    /// Starts saving. Throws what a policy throws.
    void save();
    /// Returns LiveSet::before_write for a resume. Any thread may call it.
    [[nodiscard]] std::function<Status(Range)> before_write(std::size_t resume);
    /// Returns whether a failed save kept bytes from being written.
    [[nodiscard]] bool save_failed() const noexcept;

    /// After a failure, once the resumes are destroyed: releases the pages that were written to, because they have been
    /// saved. The rest stays active.
    void release_written() noexcept;

private:
    struct Pair {
        std::size_t pause;
        std::size_t extent; ///< index in the pause
        Range source;
        std::size_t resume;
        Range target;
        bool whole;   ///< all of it must be saved before any of it is written to
        bool written; ///< guarded by the mutex
    };

    Status wait_for(Pair& pair, Range target);

    std::vector<PauseStep>& out_;
    std::deque<Pair> pairs_;
    std::vector<std::vector<bool>> written_; // for each extent of each pause; filled in at the end
    std::vector<bool> safe_;                 // for each pause: the device was not lost before everything was saved
    mutable std::mutex mutex_;
    bool save_failed_ = false; // guarded by the mutex
};

/// Runs an exchange to its end. `out` have been begun and wait for `order`; `in` have been begun. Memory that is handed
/// over is never released. Missing memory is created before anything changes if it is available, otherwise after `out`
/// has released its own. `relieve(device)` as for `run_resume`. If it throws, the report says what was done: of `out`,
/// memory that was handed over or released is paused and saved, the rest is active; of `in`, either everything is
/// resumed or nothing. `ending` as for `run_resume`, for `in`.
Report run_exchange(std::vector<PauseStep>& out, std::vector<ResumeStep>& in, const Order& order,
                    const Deadline& deadline, const std::vector<AnyDriver>& others, FunctionRef<bool(int)> relieve,
                    FunctionRef<void(std::size_t)> ending);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/exchange.ipp"
#endif
