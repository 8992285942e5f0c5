// Definitions of order.hpp.
#pragma once

#include "memsaver/core/order.hpp"

#include <chrono>
#include <optional>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE Deadline deadline_after(const std::optional<std::chrono::nanoseconds>& timeout) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point now = Clock::now();
    if (!timeout || *timeout > Clock::time_point::max() - now) return {};
    return now + *timeout;
}

} // namespace detail

} // namespace memsaver::inline v0_2
