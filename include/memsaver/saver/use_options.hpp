// What `use` and `reclaim` are asked, and what `reclaim` answers.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/usage.hpp"

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

/// Options of MemorySaver::use, written as `{.room_within = 2s}`.
struct UseOptions {
    /// How long to wait for room that other threads' uses hold, or what they marked; then OutOfMemory. None: as long as
    /// it takes. Where their ends cannot make enough, `use` does not wait at all.
    std::optional<std::chrono::nanoseconds> room_within{};
    /// How long to wait for everything but uses to end: other operations on the tags concerned, the work that uses of
    /// evicted tags marked, and `order`; then NotIdle. None: as long as it takes.
    std::optional<std::chrono::nanoseconds> timeout{};
    /// What evictions wait for besides the ends of uses and what these marked. For programs whose work outside of every
    /// use may touch what is evicted.
    Order order = already_idle;
    /// False: a tag whose bytes `resume_async` is bringing counts as here. Where all tags are here or on their way,
    /// `use` does not wait for the bytes, and nobody evicts them meanwhile; until they have come they are touched
    /// behind the Arrival or a Gate only.
    bool await_bytes = true;
};

/// Options of MemorySaver::reclaim.
struct ReclaimOptions {
    /// The number of the device that is to have more; none: the saver's own.
    std::optional<int> device{};
    /// As UseOptions::order.
    Order order = already_idle;
    /// How long to wait for work that uses of a tag marked, and for other operations on it; then the tag is passed
    /// by. None: as long as it takes.
    std::optional<std::chrono::nanoseconds> timeout{};
};

/// What MemorySaver::reclaim got, and why not more. Bytes of physical memory. Printable.
struct Reclaimed {
    std::size_t wanted_bytes = 0;
    std::size_t unused_bytes = 0;  ///< given back of what nobody used
    std::size_t elastic_bytes = 0; ///< given back by owners of elastic memory, whom it asked
    std::size_t evicted_bytes = 0; ///< given back by pausing idle tags
    Report report;                 ///< of those pauses: a row for each tag and device
    std::vector<Holder> holders;   ///< who still holds the device's memory
    std::string why_not_more;      ///< empty where as much was got as was wanted

    /// What the device got back in all.
    [[nodiscard]] std::size_t bytes() const noexcept { return unused_bytes + elastic_bytes + evicted_bytes; }

    /// "reclaimed 8.00 GiB of 10.0 GiB: 2.00 GiB unused, 6.00 GiB of idle tags; held: ..."
    friend std::ostream& operator<<(std::ostream& out, const Reclaimed& what);
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/use_options.ipp"
#endif
