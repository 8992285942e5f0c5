// The options of `use` and `reclaim`, and the result of `reclaim`.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/usage.hpp"

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

/// Options of MemorySaver::use, written as `{.room_within = 2s}`.
struct UseOptions {
    /// How long to wait for whatever it is: other threads' uses, the work that they marked, their moves and pauses,
    /// open captures, and `order`; not for the device's own work where that is needed to find memory. Then OutOfMemory
    /// if room was lacking, or NotIdle. Empty: no limit. If the end of other uses cannot free enough, `use` does not
    /// wait for them at all.
    TimeLimit room_within{};
    /// The same; the earlier of both counts.
    TimeLimit timeout{};
    /// What evictions wait for, in addition to the ends of uses and the work they marked. For programs in which work
    /// outside of any use may touch evicted memory.
    Order order = already_idle;
    /// If false, a tag whose bytes are arriving from a `resume_async` counts as resident. If every tag is resident or
    /// arriving, `use` does not wait for the bytes, and the tags are not evicted while they arrive. Until the bytes
    /// have arrived, the program must access them only through the Arrival or a Gate.
    bool await_bytes = true;
};

/// Options of MemorySaver::reclaim.
struct ReclaimOptions {
    /// The device to release memory of; empty: the saver's own.
    std::optional<int> device{};
    /// See UseOptions::order.
    Order order = already_idle;
    /// How long to wait, per tag, for work marked by its uses and for other operations on it; then the tag is skipped.
    /// Empty: no limit.
    TimeLimit timeout{};
    /// Pauses no tag with which more than so much would be released in all, because tags are released whole.
    std::size_t at_most = ~std::size_t{0};
};

/// The result of MemorySaver::reclaim. Bytes of physical memory. Printable.
struct Reclaimed {
    std::size_t wanted_bytes = 0;
    std::size_t unused_bytes = 0;  ///< released from unused memory
    std::size_t elastic_bytes = 0; ///< released by owners of elastic memory on request
    std::size_t evicted_bytes = 0; ///< released by pausing idle tags
    Report report;                 ///< of those pauses, with a row for each tag and device
    std::vector<Holder> holders;   ///< the tags that still hold the device's memory
    std::string why_not_more;      ///< why fewer bytes were released than requested; empty otherwise

    /// Returns the total bytes released to the device.
    [[nodiscard]] std::size_t bytes() const noexcept { return unused_bytes + elastic_bytes + evicted_bytes; }

    /// "reclaimed 8.00 GiB (10.0 GiB requested): 2.00 GiB unused, 6.00 GiB of idle tags; held: ..."
    friend std::ostream& operator<<(std::ostream& out, const Reclaimed& what);
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/use_options.ipp"
#endif
