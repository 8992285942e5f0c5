// What all users of copies of one driver share: how busy the machine's lanes are.
#pragma once

#include "memsaver/core/handles.hpp"

#include <atomic>
#include <cstdint>

namespace memsaver::inline v0_3 {

/// Shared by all copies of a driver. A driver only has to provide one. Thread-safe.
class Neighbours {
public:
    Neighbours& operator=(Neighbours&&) = delete;

    /// The copies of the machine in one direction.
    struct Lane {
        std::atomic<unsigned> transfers{0};  ///< number of transfers that use this lane
        std::atomic<bool> stalled{false};    ///< whether the last transfer that monitored its copies found them slow
        std::atomic<std::int64_t> looked{0}; ///< time of that finding, in nanoseconds of the steady clock
    };
    /// The same object for all callers.
    [[nodiscard]] Lane& lane(Direction direction) noexcept { return lanes_[direction == Direction::out ? 0 : 1]; }

private:
    Lane lanes_[2];
};

} // namespace memsaver::inline v0_3
