// What a pause, a resume or a trim did, in bytes and time. Exceptions carry one too: what was done before the failure.
#pragma once

#include "memsaver/base/sizes.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

namespace memsaver::inline v0_1 {

/// The part of an operation that concerned one tag on one device. Bytes and durations.
struct TagReport {
    std::string tag;
    int device = 0;
    std::size_t released_bytes = 0;     ///< physical bytes given back to the device, those held so far included
    std::size_t saved_bytes = 0;        ///< bytes copied to the backup
    std::size_t restored_bytes = 0;     ///< bytes copied, or filled, from the backup
    std::size_t mapped_bytes = 0;       ///< physical bytes taken from the device
    std::size_t held_bytes = 0;         ///< physical bytes the tag could not give back yet; the next call tries again
    std::chrono::nanoseconds waited{0}; ///< for this device's work, before anything was done
};

/// The sums over all tags concerned, and a row for each.
struct Report {
    std::size_t released_bytes = 0;
    std::size_t saved_bytes = 0;
    std::size_t restored_bytes = 0;
    std::size_t mapped_bytes = 0;
    std::size_t held_bytes = 0;
    std::chrono::nanoseconds elapsed{0}; ///< the whole call, hooks excluded
    std::vector<TagReport> tags;

    void add(TagReport row) {
        released_bytes += row.released_bytes;
        saved_bytes += row.saved_bytes;
        restored_bytes += row.restored_bytes;
        mapped_bytes += row.mapped_bytes;
        held_bytes += row.held_bytes;
        tags.push_back(std::move(row));
    }

    /// "released 1.00 GiB, saved 0 B, still held 0 B, 0.6 ms"; a resume says what it mapped and restored instead.
    friend std::ostream& operator<<(std::ostream& out, const Report& report) {
        if (report.mapped_bytes != 0) {
            out << "mapped " << format_bytes(report.mapped_bytes) << ", restored "
                << format_bytes(report.restored_bytes);
        } else {
            out << "released " << format_bytes(report.released_bytes) << ", saved " << format_bytes(report.saved_bytes);
        }
        char time[32];
        std::snprintf(time, sizeof time, "%.1f ms", std::chrono::duration<double, std::milli>{report.elapsed}.count());
        return out << ", still held " << format_bytes(report.held_bytes) << ", " << time;
    }
};

} // namespace memsaver::inline v0_1
