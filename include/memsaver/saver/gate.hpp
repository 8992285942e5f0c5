// Gate: what captured graphs wait for before they touch bytes that may be on their way.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/fwd.hpp"

#include <memory>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {
class ArenaBase;
class SaverCore;
struct GateMark;
} // namespace detail

/// Stands for a part of a block. Work behind it waits for just these bytes whenever `resume_async` has them on their
/// way, and for nothing otherwise; in a captured graph, in every replay. Made by MemorySaver::gate and Arena::gate. A
/// cheap handle: copies stand for the same gate. Keeps the saver's core alive, and the block only as long as the
/// program does: once the block has been freed, the gate never waits again. A default one, and one that was moved from,
/// stands for nothing, and every use of it is Misuse.
///
/// A Graph of memsaver's `capture` keeps the gates that its body used. For a graph that was captured by other means,
/// the program keeps a copy of each gate until the graph has been destroyed and its launches have ended.
class Gate {
public:
    Gate() = default;
    Gate(std::shared_ptr<detail::SaverCore> saver, std::shared_ptr<detail::ArenaBase> arena,
         std::shared_ptr<detail::GateMark> mark) noexcept
        : saver_{std::move(saver)}, arena_{std::move(arena)}, mark_{std::move(mark)} {}

    /// Work that `stream` is given from now on waits until the bytes are here. If the stream is being captured, a wait
    /// becomes part of the graph: each launch waits for the bytes that are on their way then, without a new capture,
    /// and a launch with nothing on its way hardly pays for it. Does not wait itself; any thread. No byte is read early
    /// for launches after `resume_async` has returned; while the memory is paused, nothing behind the gate may be
    /// launched.
    ///
    /// Where bytes could not be brought, gates open all the same, so that no stream waits for ever; `Arrival::wait`
    /// tells. Throws what kept the bytes of the tag from coming, if the stream is not being captured; Misuse after
    /// `close`, once the tag has been dropped, and in a forked child; or what a failing driver call stands for.
    void before(StreamRef stream) const;

    [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
    friend bool operator==(const Gate& a, const Gate& b) noexcept { return a.arena_ == b.arena_ && a.mark_ == b.mark_; }

private:
    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it dies last
    std::shared_ptr<detail::ArenaBase> arena_;
    std::shared_ptr<detail::GateMark> mark_; // none: nothing is ever on its way
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/gate.ipp"
#endif
