// Slots that are needed no more, until they could be closed.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// One thread at a time.
class SpentSlots {
public:
    /// Closes a slot, and lets it go; if that fails it is kept, to be tried again. Answers its failure.
    Status add(std::shared_ptr<AnySlot> slot) noexcept;

    /// Tries those again that are kept. Answers the first failure.
    Status retry() noexcept;

    /// Whether none is kept. Any thread.
    [[nodiscard]] bool empty() const noexcept { return count_.load() == 0; }

private:
    std::vector<std::shared_ptr<AnySlot>> slots_;
    std::atomic<std::size_t> count_{0}; // of them
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/spent_slots.ipp"
#endif
