// The options of an arena.
#pragma once

#include "memsaver/base/event.hpp"
#include "memsaver/memory/host_budget.hpp"

#include <cstddef>
#include <memory>

namespace memsaver::inline v0_1 {

struct ArenaOptions {
    /// Bytes of addresses that the arena may ever use at once; 0: twice the device's memory.
    std::size_t capacity = 0;
    /// Bytes of memory taken at once, in as few pieces as can be; later growth comes on top.
    std::size_t reserve = 0;
    /// Bytes of the device's memory that allocations and resumes leave free.
    std::size_t margin = 0;
    /// Told what could not be thrown.
    EventSink events{};
    /// Shared by arenas that may take host memory at the same time; a saver's arenas share the saver's.
    std::shared_ptr<HostBudget> host_budget{};
};

} // namespace memsaver::inline v0_1
