// Slots that nobody needs any more. Knows which could not give everything back so far; not whose they were.
#pragma once

#include "memsaver/backup/any_backup.hpp"

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// One thread at a time.
class SpentSlots {
public:
    /// Closes a slot, and lets it go; if that fails it is kept, to be tried again. Answers its failure.
    Status add(std::shared_ptr<AnySlot> slot) noexcept {
        const Status status = slot->close();
        if (status.ok()) return status;
        try {
            slots_.push_back(std::move(slot));
        } catch (const std::bad_alloc&) { // its destructor tries once more
        }
        return status;
    }

    /// Tries those again that are kept. Answers the first failure.
    Status retry() noexcept {
        Status first;
        std::erase_if(slots_, [&](const std::shared_ptr<AnySlot>& slot) {
            const Status status = slot->close();
            if (first.ok()) first = status;
            return status.ok();
        });
        return first;
    }

private:
    std::vector<std::shared_ptr<AnySlot>> slots_;
};

} // namespace memsaver::inline v0_1
