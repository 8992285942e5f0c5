// An arena's calls for callers to which nothing may be thrown. Does not know who calls.
#pragma once

#include "memsaver/saver/memory_saver.hpp"

#include <cstddef>
#include <exception>

namespace memsaver::inline v0_2 {

/// Null where there is no room, where the request cannot be, and for 0 bytes; but for those, `events` is told why.
[[nodiscard]] inline void* allocate_or_null(const Arena& arena, std::size_t bytes, const EventSink& events = {},
                                            std::size_t alignment = detail::Request::default_alignment) noexcept {
    if (bytes == 0) return nullptr;
    try {
        return arena.allocate(bytes, alignment);
    } catch (const std::exception& error) {
        detail::tell(events, [&] {
            Event event{EventKind::ignored, "", 0, error.what()};
            if (arena) {
                event.tag = arena.tag();
                event.device = arena.device();
            }
            return event;
        });
    } catch (...) { // a user's policy or driver may throw anything
        detail::tell(events, [] {
            return Event{EventKind::ignored, "", 0, "an allocation failed for a reason unknown"};
        });
    }
    return nullptr;
}

/// The block can be handed out again once `stream` has passed here or, where the stream cannot be marked, once the
/// whole device has. What goes wrong goes to the saver's event sink; after `close()` it does nothing.
inline void deallocate_or_tell(const Arena& arena, void* pointer, StreamRef stream) noexcept {
    if (pointer == nullptr) return;
    try {
        arena.deallocate(pointer, stream);
    } catch (...) {
        arena.deallocate_quietly(pointer);
    }
}

} // namespace memsaver::inline v0_2
