// The result of a pause, resume, exchange or trim, in bytes and time. Exceptions carry one too: the work done before
// the failure.
#pragma once

#include "memsaver/core/form.hpp"

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

/// The part of an operation that concerned one tag on one device, in bytes and durations.
struct TagReport {
    std::string tag;
    int device = 0;
    std::size_t released_bytes = 0;     ///< physical bytes released to the device, including bytes held until now
    std::size_t saved_bytes = 0;        ///< bytes copied to the backup
    std::size_t restored_bytes = 0;     ///< bytes restored from the backup, by copying or filling
    std::size_t mapped_bytes = 0;       ///< physical bytes taken from the device or from a paused tag
    std::size_t handed_bytes = 0;       ///< physical bytes handed over to a resumed tag
    std::size_t held_bytes = 0;         ///< physical bytes that could not be released yet; the next call retries
    std::chrono::nanoseconds waited{0}; ///< time spent waiting for this device's work, before any other step
};

/// The sums over all tags concerned, with one row for each tag and device.
struct Report {
    std::size_t released_bytes = 0;
    std::size_t saved_bytes = 0;
    std::size_t restored_bytes = 0;
    std::size_t mapped_bytes = 0;
    std::size_t handed_bytes = 0; ///< handed over from tag to tag and never released; included in `mapped_bytes`
    std::size_t held_bytes = 0;
    std::chrono::nanoseconds elapsed{0}; ///< duration of the whole call, excluding hooks
    std::vector<TagReport> tags;

    /// Appends a row and adds its bytes to the sums. Does not change `elapsed`.
    void add(TagReport row);
    /// Appends the rows of an earlier attempt, and its time. Without host memory, only their bytes count.
    void add(const Report& earlier) noexcept;

    /// Prints "released 1.00 GiB, saved 0 B, still held 0 B, 0.6 ms". A resume prints mapped and restored bytes
    /// instead; an exchange prints both, and the bytes handed over.
    friend std::ostream& operator<<(std::ostream& out, const Report& report);
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/report.ipp"
#endif
