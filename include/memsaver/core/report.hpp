// What a pause, a resume, an exchange or a trim did, in bytes and time. Exceptions carry one too: what was done before
// the failure.
#pragma once

#include "memsaver/core/form.hpp"

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

/// The part of an operation that concerned one tag on one device. Bytes and durations.
struct TagReport {
    std::string tag;
    int device = 0;
    std::size_t released_bytes = 0;     ///< physical bytes given back to the device, those held so far included
    std::size_t saved_bytes = 0;        ///< bytes copied to the backup
    std::size_t restored_bytes = 0;     ///< bytes copied, or filled, from the backup
    std::size_t mapped_bytes = 0;       ///< physical bytes taken from the device, or from a tag that went
    std::size_t handed_bytes = 0;       ///< physical bytes passed on to a tag that came for this one
    std::size_t held_bytes = 0;         ///< physical bytes the tag could not give back yet; the next call tries again
    std::chrono::nanoseconds waited{0}; ///< for this device's work, before anything was done
};

/// The sums over all tags concerned, and a row for each.
struct Report {
    std::size_t released_bytes = 0;
    std::size_t saved_bytes = 0;
    std::size_t restored_bytes = 0;
    std::size_t mapped_bytes = 0;
    std::size_t handed_bytes = 0; ///< of those that were mapped: passed from tag to tag, never released
    std::size_t held_bytes = 0;
    std::chrono::nanoseconds elapsed{0}; ///< the whole call, hooks excluded
    std::vector<TagReport> tags;

    /// Appends a row, and adds its bytes to the sums. `elapsed` stays as it is.
    void add(TagReport row);

    /// "released 1.00 GiB, saved 0 B, still held 0 B, 0.6 ms"; a resume says what it mapped and restored instead,
    /// an exchange what it handed over as well as both.
    friend std::ostream& operator<<(std::ostream& out, const Report& report);
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/report.ipp"
#endif
