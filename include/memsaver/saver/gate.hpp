// `Gate`: makes captured graphs wait for bytes that may be in flight.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/fwd.hpp"

#include <memory>
#include <utility>

namespace memsaver::inline v0_3 {

/// A wait point for part of a block. Work behind a gate waits for exactly these bytes whenever `resume_async` has them
/// in flight, and otherwise does not wait; in a captured graph this applies to every replay. Made by MemorySaver::gate
/// and Arena::gate. A cheap handle: copies refer to the same gate. Keeps the saver's core alive, but not the block:
/// once the block is freed, the gate never waits again. A default-constructed or moved-from gate refers to nothing, and
/// using it throws Misuse.
///
/// A Graph made by memsaver's `capture` keeps the gates that its body used. For a graph captured by other means, the
/// program must keep a copy of each gate until the graph is destroyed and its launches have completed.
class Gate {
public:
    Gate() = default;
    Gate(std::shared_ptr<detail::SaverCore> saver, std::shared_ptr<detail::ArenaCore> arena,
         std::shared_ptr<detail::GateMark> mark) noexcept
        : saver_{std::move(saver)}, arena_{std::move(arena)}, mark_{std::move(mark)} {}

    /// Makes work submitted to `stream` after this call wait until the bytes have arrived. If the stream is being
    /// captured, the wait becomes part of the graph: each launch waits for the bytes in flight at that time, without a
    /// new capture; a launch with nothing in flight costs almost nothing extra. Does not block the caller; thread-safe.
    /// Launches after `resume_async` has returned never read a byte before it has arrived. While the memory is paused,
    /// nothing behind the gate may be launched.
    ///
    /// If bytes could not be restored, gates open anyway, so that no stream waits forever; `Arrival::wait` reports the
    /// failure. If the stream is not being captured, this call throws the failure that kept the tag's bytes from
    /// arriving. Throws Misuse after `close`, after the tag was dropped, and in a forked child, or the exception for a
    /// failed driver call.
    void before(StreamRef stream) const;

    [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
    friend bool operator==(const Gate& a, const Gate& b) noexcept { return a.arena_ == b.arena_ && a.mark_ == b.mark_; }

private:
    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it is destroyed last
    std::shared_ptr<detail::ArenaCore> arena_;
    std::shared_ptr<detail::GateMark> mark_; // null: nothing is ever in flight
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/gate.ipp"
#endif
