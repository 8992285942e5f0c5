// The options of pause and trim.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/backup/backup.hpp"

#include <chrono>
#include <optional>

namespace memsaver::inline v0_1 {

/// `D` is the driver of the arenas concerned; written as `{.order = ..., .timeout = ...}`.
template <class D>
struct PauseOptions {
    /// What to wait for before pages go. By default the devices' work, on CUDA that of their primary contexts; streams
    /// of a context of the program's own (cuCtxCreate) have to be named: `after(stream)`.
    Order order{};
    /// How long to wait for that, and for other operations on the same tags. None: as long as it takes.
    std::optional<std::chrono::nanoseconds> timeout{};
    /// What becomes of the bytes this once, if not what the tag's policy says.
    std::optional<AnyBackup<D>> bytes{};
};

struct TrimOptions {
    Order order{};
    std::optional<std::chrono::nanoseconds> timeout{};
};

/// None if it lies beyond what the clock can tell.
inline Deadline deadline_after(const std::optional<std::chrono::nanoseconds>& timeout) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point now = Clock::now();
    if (!timeout || *timeout > Clock::time_point::max() - now) return {};
    return now + *timeout;
}

} // namespace memsaver::inline v0_1
