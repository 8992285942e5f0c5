// A saver as its handles see it: no driver is named.
#pragma once

#include "memsaver/arena/arena.hpp"

#include <cstddef>

namespace memsaver::inline v0_1 {

/// What Arena, Region and Buffer ask of the saver that they keep alive.
class SaverBase {
public:
    SaverBase() = default;
    SaverBase(const SaverBase&) = delete;
    SaverBase& operator=(const SaverBase&) = delete;
    virtual ~SaverBase() = default;

    /// From `arena`; where the device has no room, once more after the saver's own unused memory has been given back.
    virtual void* allocate_from(ArenaBase& arena, std::size_t bytes, std::size_t alignment) = 0;

    /// How a block of `arena` is given up now: inside a capture that this saver knows of, it stays with the graph; with
    /// a stream of another of the saver's devices, that one's work is marked. Throws only for streams: what a failing
    /// driver call stands for.
    [[nodiscard]] virtual FreeOrder order_now(const ArenaBase& arena, FreeOrder order) = 0;

    /// The device has no room: gives back memory that no tag uses there. Whether there was any. Waits for nothing.
    virtual bool make_room(int device) = 0;

    virtual void enter(ArenaBase& arena, const void* region) = 0;
    virtual void leave(const ArenaBase& arena, const void* region) noexcept = 0;
};

} // namespace memsaver::inline v0_1
