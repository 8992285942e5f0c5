// Definitions of retired_slots.hpp.
#pragma once

#include "memsaver/backup/retired_slots.hpp"

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Status RetiredSlots::add(std::shared_ptr<AnySlot> slot) noexcept {
    const Status status = slot->close();
    if (status.ok()) return status;
    try {
        slots_.push_back(std::move(slot));
        count_.store(slots_.size());
    } catch (const std::bad_alloc&) { // its destructor retries once
    }
    return status;
}

MEMSAVER_INLINE Status RetiredSlots::retry() noexcept {
    Status first;
    std::erase_if(slots_, [&](const std::shared_ptr<AnySlot>& slot) {
        const Status status = slot->close();
        if (first.ok()) first = status;
        return status.ok();
    });
    count_.store(slots_.size());
    return first;
}

} // namespace detail

} // namespace memsaver::inline v0_3
