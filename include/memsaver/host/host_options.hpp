// Options and counts of a HostDriver. Values only.
#pragma once

#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <limits>

namespace memsaver::inline v0_3 {

/// How a HostDriver behaves. By default it is fast and as strict as a GPU; tests can make it stricter.
struct HostDriverOptions {
    /// A number for display only.
    int device = 0;

    /// Page granularity in bytes: a power of two, and at least the system's page size.
    std::size_t granularity = 2_MiB;

    /// Fill new pages and plain allocations with `host_poison`, at the cost of touching them. Otherwise new pages read
    /// as zero and plain allocations are undefined.
    bool poison = false;

    /// Start work only when a thread waits for it or queries whether it has completed, and then only as much as that
    /// requires. Work with missing ordering then runs too late on every run, not only occasionally.
    bool late = false;

    /// Record a fault and continue without the work concerned, for tests that read `violations()`. Otherwise a fault
    /// loses the machine, as an illegal address loses a CUDA context.
    bool survive_faults = false;

    /// Name the tag of an address in `violations()`, and on stderr, with the address, before a segmentation fault in
    /// memory of a tag. For this, a SIGSEGV handler is installed while any tag has addresses on such a machine; it
    /// chains to the previously installed handler, and the fault then proceeds as without it. A program that faults
    /// deliberately and continues may not want the line.
    bool tell_faults = true;

    /// Maximum bytes of host pages pinned at once; 0: none, as in a sandbox that forbids pinning.
    std::size_t pin_limit = std::numeric_limits<std::size_t>::max();
};

/// The fill byte of `HostDriverOptions::poison`.
inline constexpr unsigned char host_poison = 0xCB;

/// A pool of a HostDriver, identified by its address alone.
struct HostPool {};

/// Live resources of a HostDriver. All zero once everything has been released.
struct HostCounts {
    std::size_t reservations = 0;
    std::size_t handles = 0; ///< not released; the pages of a released handle live on while mapped
    std::size_t mappings = 0;
    std::size_t plain_allocations = 0;
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t graphs = 0;
    std::size_t held_bytes = 0;   ///< taken from the capacity
    std::size_t pinned_bytes = 0; ///< of host pages
    friend bool operator==(const HostCounts&, const HostCounts&) = default;
};

} // namespace memsaver::inline v0_3
