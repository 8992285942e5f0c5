// Allocates and frees from an arena without throwing, for callers that do not allow exceptions.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/saver/memory_saver.hpp"

#include <cstddef>
#include <exception>

namespace memsaver::inline v0_3 {

/// Allocates `bytes` from `arena`. Returns null for 0 bytes; also returns null, and reports the reason to `events`, if
/// the request is invalid or memory is exhausted.
[[nodiscard]] inline void* allocate_or_null(const Arena& arena, std::size_t bytes, const EventSink& events = {},
                                            std::size_t alignment = detail::Request::default_alignment) noexcept {
    if (bytes == 0) return nullptr;
    try {
        return arena.allocate(bytes, alignment);
    } catch (const std::exception& error) {
        detail::tell(events, EventKind::ignored, arena ? arena.tag().c_str() : "", arena ? arena.device() : 0,
                     {error.what()});
    } catch (...) { // a user's policy or driver may throw anything
        detail::tell(events, EventKind::ignored, "", 0, {"an allocation failed for an unknown reason"});
    }
    return nullptr;
}

/// Frees a block. It is reused once `stream` has completed all work submitted to it before this call or, if the stream
/// cannot be marked, once the whole device has. Failures go to the saver's event sink. A no-op after `close()`.
inline void deallocate_or_report(const Arena& arena, void* pointer, StreamRef stream) noexcept {
    if (pointer == nullptr) return;
    try {
        arena.deallocate(pointer, stream);
    } catch (...) {
        arena.deallocate_quietly(pointer);
    }
}

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
