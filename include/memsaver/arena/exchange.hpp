// Runs pauses and resumes against each other: pages pass from one to the other, and bytes go both ways at once.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/core/function_ref.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Which pages pass from which pause to which resume, and how far their bytes have come.
///
///     pause   |  A: 1 GiB  |  B: 1 GiB  | C: 2 MiB |          saved piece by piece, all the while mapped here
///                   |            |           `-> released
///     resume  |  A: 1 GiB  |  B: 1 GiB  | new: 512 MiB |      mapped here too: a piece is restored once the page
///                                                             that it comes into has been saved so far
///
/// Pages pass between equal drivers, whole handles only: the largest that fits comes first. Where not all of a save is
/// on its streams yet (host pages are still being taken, or bytes go through a ring), something may still keep the rest
/// of a page from being saved, so a page is written to once the whole of it is safe; else once the piece is. So after a
/// failure, each page is either as it was or was saved as a whole.
class Handover {
public:
    /// Plans, and maps the pages that pass at their new addresses. Throws what a failing driver call stands for, and
    /// bad_alloc; then the resumes are to be dropped, and nothing else has changed.
    Handover(std::vector<PauseStep>& out, std::vector<ResumeStep>& in);
    Handover(const Handover&) = delete;
    Handover& operator=(const Handover&) = delete;

    /// Bytes of a device's that are given back because no resume can have them as they are.
    [[nodiscard]] std::size_t left_over(const AnyDriver& driver) const noexcept;

    /// Starts saving. Throws what a policy throws.
    void save();
    /// LiveSet::before_write of a resume. Any thread.
    [[nodiscard]] std::function<Status(Range)> before_write(std::size_t resume);
    /// Whether a save kept bytes from being written.
    [[nodiscard]] bool save_failed() const noexcept;

    /// After a failure, with the resumes gone: pages that were written to go, for they have been saved; the rest stays
    /// active.
    void release_written() noexcept;

private:
    struct Pair {
        std::size_t pause;
        std::size_t extent; ///< of the pause
        Range source;
        std::size_t resume;
        Range target;
        bool whole;   ///< must be saved whole before any of it is written to
        bool written; ///< guarded by the mutex
    };

    Status wait_for(Pair& pair, Range target);

    std::vector<PauseStep>& out_;
    std::deque<Pair> pairs_;
    std::vector<std::vector<bool>> written_; // of each pause's extents; filled in the end
    std::vector<bool> safe_;                 // of each pause: the device was not lost before all was saved
    mutable std::mutex mutex_;
    bool save_failed_ = false; // guarded by it
};

/// Runs an exchange to its end. `out` have been begun and wait for `order`; `in` have been begun. Memory that passes
/// from one to the other is never released; what is missing is taken before anything changes if it is there, and
/// otherwise once `out` has given it back. `relieve(device)` as for `run_resume`. If it throws, the report says what
/// has been done: of `out`, what it handed on or released is paused and saved, the rest is active; of `in`, nothing is
/// resumed unless all is. `ending` as for `run_resume`, of `in`.
Report run_exchange(std::vector<PauseStep>& out, std::vector<ResumeStep>& in, const Order& order,
                    const Deadline& deadline, const std::vector<AnyDriver>& others, FunctionRef<bool(int)> relieve,
                    FunctionRef<void(std::size_t)> ending);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/exchange.ipp"
#endif
