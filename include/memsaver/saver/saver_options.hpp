// The options of a saver.
#pragma once

#include "memsaver/base/event.hpp"
#include "memsaver/base/quarantine.hpp"

#include <cstddef>
#include <optional>

namespace memsaver::inline v0_1 {

struct SaverOptions {
    /// Off: the same program runs with plain allocations; pause and resume check their tags and do nothing.
    bool enabled = true;
    /// Bytes of each device's memory that this saver's allocations and resumes leave free.
    std::size_t margin = 0;
    /// Puts shared pages behind paused addresses, so that stray reads pass. It hides bugs: see Quarantine.
    std::optional<Quarantine> quarantine{};
    /// Told what could not be thrown, what was tried again, and how far copies have come.
    EventSink events{};
};

} // namespace memsaver::inline v0_1
