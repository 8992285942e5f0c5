// Definitions of report.hpp.
#pragma once

#include "memsaver/core/report.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstdio>
#include <new>
#include <ostream>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE void Report::add(TagReport row) {
    released_bytes += row.released_bytes;
    saved_bytes += row.saved_bytes;
    restored_bytes += row.restored_bytes;
    mapped_bytes += row.mapped_bytes;
    handed_bytes += row.handed_bytes;
    held_bytes += row.held_bytes;
    tags.push_back(std::move(row));
}

MEMSAVER_INLINE void Report::add(const Report& earlier) noexcept {
    elapsed += earlier.elapsed;
    try {
        for (const TagReport& row : earlier.tags) add(row);
    } catch (const std::bad_alloc&) { // what the attempt did stays done
    }
}

MEMSAVER_INLINE std::ostream& operator<<(std::ostream& out, const Report& report) {
    if (report.handed_bytes != 0) {
        out << "handed over " << format_bytes(report.handed_bytes) << ", released "
            << format_bytes(report.released_bytes) << ", saved " << format_bytes(report.saved_bytes) << ", mapped "
            << format_bytes(report.mapped_bytes) << ", restored " << format_bytes(report.restored_bytes);
    } else if (report.mapped_bytes != 0) {
        out << "mapped " << format_bytes(report.mapped_bytes) << ", restored " << format_bytes(report.restored_bytes);
    } else {
        out << "released " << format_bytes(report.released_bytes) << ", saved " << format_bytes(report.saved_bytes);
    }
    char time[32];
    std::snprintf(time, sizeof time, "%.1f ms", std::chrono::duration<double, std::milli>{report.elapsed}.count());
    return out << ", still held " << format_bytes(report.held_bytes) << ", " << time;
}

} // namespace memsaver::inline v0_3
