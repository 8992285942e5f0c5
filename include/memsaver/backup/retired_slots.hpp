// Slots that are no longer needed but could not be closed yet.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Not thread-safe, except `empty`.
class RetiredSlots {
public:
    /// Closes a slot and drops it. If that fails, keeps it for `retry` and returns the failure.
    Status add(std::shared_ptr<AnySlot> slot) noexcept;

    /// Closes the kept slots again. Returns the first failure.
    Status retry() noexcept;

    /// Returns whether no slot is kept. Thread-safe.
    [[nodiscard]] bool empty() const noexcept { return count_.load() == 0; }

private:
    std::vector<std::shared_ptr<AnySlot>> slots_;
    std::atomic<std::size_t> count_{0}; // size of slots_
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/retired_slots.ipp"
#endif
