// What sharing workspaces saved, and how it is printed.
#pragma once

#include "memsaver/base/base.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>

namespace memsaver::inline v0_1 {

/// Counts and bytes of one WorkspacePool.
struct WorkspaceStats {
    std::size_t names = 0;
    std::size_t places = 0;       ///< address ranges that names share, lent ones included
    std::size_t asked_bytes = 0;  ///< the sum over the names of the most that each has asked for
    std::size_t mapped_bytes = 0; ///< memory that the pool took for them, paused or not
    std::size_t lent_bytes = 0;   ///< memory of others that names may use
    std::uint64_t gets = 0;       ///< calls that were answered
    std::uint64_t reuses = 0;     ///< of these, those that took no memory
    std::uint64_t growths = 0;    ///< and those that did

    /// What the names would take by themselves and did not, in whole workspaces: never negative.
    [[nodiscard]] std::size_t saved_bytes() const noexcept { return asked_bytes - std::min(asked_bytes, mapped_bytes); }

    /// "3 workspaces in 1 place: 96.00 MiB asked for, 48.00 MiB taken, 0 B lent, reuse saved 48.00 MiB"
    friend std::ostream& operator<<(std::ostream& out, const WorkspaceStats& stats) {
        return out << stats.names << (stats.names == 1 ? " workspace in " : " workspaces in ") << stats.places
                   << (stats.places == 1 ? " place: " : " places: ") << format_bytes(stats.asked_bytes)
                   << " asked for, " << format_bytes(stats.mapped_bytes) << " taken, " << format_bytes(stats.lent_bytes)
                   << " lent, reuse saved " << format_bytes(stats.saved_bytes());
    }
};

} // namespace memsaver::inline v0_1
