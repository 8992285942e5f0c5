// The two functions of a PyTorch pluggable allocator, over arenas that the program provides:
//     void* f(ssize_t bytes, int device, cudaStream_t stream)
//     void g(void* pointer, ssize_t bytes, int device, cudaStream_t stream)
// Needs no headers of PyTorch or CUDA, and no Python. docs/interop.md shows a complete library.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/interop/no_throw.hpp"

#include <cstddef>
#include <exception>

namespace memsaver::inline v0_3 {

/// Allocates `bytes` from `arena`, usable on every stream at once. Returns null for 0 bytes, if `device` is not the
/// arena's, or if memory is exhausted; the last two are reported to `events`. On null, PyTorch's caching allocator (a
/// torch.cuda.MemPool over these functions) releases its cached memory, retries, and then raises its own error. Without
/// the caching allocator (a pluggable allocator that replaces PyTorch's allocator), PyTorch does not check for null.
[[nodiscard]] inline void* pytorch_allocate(const Arena& arena, std::ptrdiff_t bytes, int device, StreamRef = {},
                                            const EventSink& events = {}) noexcept {
    if (bytes <= 0) return nullptr;
    if (arena && arena.device() != device) {
        detail::tell(events, EventKind::ignored, arena.tag(), device,
                     {"memory on device ", detail::in_digits(device), " was requested from tag ",
                      detail::in_quotes(arena.tag()), " on device ", detail::in_digits(arena.device())});
        return nullptr;
    }
    return allocate_or_null(arena, static_cast<std::size_t>(bytes), events);
}

/// Frees a block of `pytorch_allocate`, paused or not. The block is reused once `stream` has completed all work
/// submitted to it before this call; PyTorch passes the stream of the allocation. A program that uses the memory on
/// other streams must order them before the free, as with PyTorch's own allocator. Failures go to the saver's event
/// sink.
inline void pytorch_deallocate(const Arena& arena, void* pointer, std::ptrdiff_t, int, StreamRef stream) noexcept {
    deallocate_or_report(arena, pointer, stream);
}

/// Frees a block of any tag of the saver. Failures are reported to `events`.
template <class D>
void pytorch_deallocate(MemorySaver<D>& saver, void* pointer, std::ptrdiff_t, int device, StreamRef stream,
                        const EventSink& events = {}) noexcept {
    const auto tell_why = [&](const char* why) { detail::tell(events, EventKind::ignored, "", device, {why}); };
    try {
        try {
            saver.deallocate(pointer, stream);
        } catch (const Misuse&) {
            throw;
        } catch (const Error&) { // if the stream cannot be marked, free in device order instead
            saver.deallocate(pointer);
        }
    } catch (const std::exception& error) {
        tell_why(error.what());
    } catch (...) { // a user's policy or driver may throw anything
        tell_why("a deallocation failed for an unknown reason");
    }
}

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
