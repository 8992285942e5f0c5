// Runs pauses and resumes against each other: pages are handed over, and copies run in both directions at once.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/core/function_ref.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Tracks which pages are handed over from which pause to which resume.
///
///     pause   |  A: 1 GiB  |  B: 1 GiB  | C: 2 MiB |          saved piece by piece, mapped here until the end
///                   |            |           `-> released
///     resume  |  A: 1 GiB  |  B: 1 GiB  | new: 512 MiB |      mapped here too: a piece is restored once the old
///                                                             bytes in its place have been saved
///
/// Only whole handles are handed over, between equal drivers; the largest that fits comes first.
class Handover {
public:
    /// Plans, and maps the pages that are handed over at their new addresses. Throws the error of a failing driver
    /// call, and std::bad_alloc; then the resumes must be dropped, and nothing else has changed.
    Handover(FixedList<PauseStep>& out, FixedList<ResumeStep>& in);
    Handover(const Handover&) = delete;
    Handover& operator=(const Handover&) = delete;

    /// Returns the bytes of a device that are released because no resume can use them as they are.
    [[nodiscard]] std::size_t left_over(const AnyDriver& driver) const noexcept;

    /// Starts saving. Throws what a policy throws.
    void save();
    /// From here on, pages that are handed over may be written to.
    void write() noexcept;
    /// Returns LiveSet::before_write for a resume. Any thread may call it.
    [[nodiscard]] std::function<Status(Range)> before_write(std::size_t resume);

    /// Hands over nothing. Nothing may have been written.
    void call_off();
    /// After a failure, once the resumes are destroyed: pauses the memory whose pages may have been written to, because
    /// its saves complete unless the device is lost. The rest stays active.
    void end_written() noexcept;

private:
    struct Pair {
        std::size_t pause;
        std::size_t extent; ///< index in the pause
        Range source;
        std::size_t resume;
        Range target;
    };

    FixedList<PauseStep>& out_;
    FixedList<ResumeStep>& in_;
    std::vector<Pair> pairs_;
    std::vector<char> written_; // for each pause: some of its pages may have been written to
};

/// Runs an exchange to its end. `out` have been begun and wait for `order`; `in` have been begun. Copies run in both
/// directions at once if every save of `out` is entirely on its streams once it has begun; otherwise all is saved
/// first. If there is no memory now for what `in` needs beyond the pages of `out`, nothing is handed over: `out` is
/// paused, then `in` resumed. If it throws, the report says what was done: each
/// of `out` is paused and saved, or active as it was; of `in`, either everything is resumed or nothing.
Report run_exchange(FixedList<PauseStep>& out, FixedList<ResumeStep>& in, const Order& order, const Deadline& deadline,
                    const std::vector<AnyDriver>& others);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/exchange.ipp"
#endif
