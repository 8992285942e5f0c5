// How a host machine is made and what it shows of itself. Values only.
#pragma once

#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <limits>

namespace memsaver::inline v0_2 {

/// How a host machine behaves. By default it is quick and as strict as a GPU; tests make it nastier.
struct HostDriverOptions {
    /// A number for people.
    int device = 0;

    /// The unit of pages in bytes: a power of two, and at least the system's page.
    std::size_t granularity = 2_MiB;

    /// Fresh pages and plain allocations are filled with `host_poison`, at the cost of touching them; otherwise fresh
    /// pages read as zero and plain allocations as anything.
    bool poison = false;

    /// Work starts only once somebody waits for it or asks whether it has passed, and then no more of it than that
    /// needs. Whatever was not ordered then runs too late, every time and not only in unlucky runs.
    bool late = false;

    /// A fault is noted and the machine goes on without the work concerned, for tests that read `violations()`.
    /// Otherwise a fault loses the machine, as an illegal address loses a CUDA context.
    bool survive_faults = false;

    /// `violations()` name the tag that an address belongs to; and before a segmentation fault in memory of a tag, a
    /// line on stderr names the tag and the address. A handler of
    /// SIGSEGV is there for that while a tag has addresses on such a machine; it hands on to the one that it found, and
    /// the fault is as it would be without. A program that means to fault and go on may not want the line.
    bool tell_faults = true;

    /// Bytes of host pages that can be pinned at once; 0: none, as in a sandbox that forbids it.
    std::size_t pin_limit = std::numeric_limits<std::size_t>::max();
};

/// What fresh bytes are under `HostDriverOptions::poison`.
inline constexpr unsigned char host_poison = 0xCB;

/// A pool of a host machine is nothing but its address.
struct HostPool {};

/// What is live on a host machine. All zero when everything was given back.
struct HostCounts {
    std::size_t reservations = 0;
    std::size_t handles = 0; ///< not released; their pages may outlive that while mapped
    std::size_t mappings = 0;
    std::size_t plain_allocations = 0;
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t graphs = 0;
    std::size_t held_bytes = 0;   ///< taken from the capacity
    std::size_t pinned_bytes = 0; ///< of host pages
    friend bool operator==(const HostCounts&, const HostCounts&) = default;
};

} // namespace memsaver::inline v0_2
