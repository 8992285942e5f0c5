// What the two functions of a PyTorch pluggable allocator do, over arenas that the program gives:
//     void* f(ssize_t bytes, int device, cudaStream_t stream)
//     void g(void* pointer, ssize_t bytes, int device, cudaStream_t stream)
// Needs none of PyTorch's or CUDA's headers; does not know Python. docs/interop.md has a whole library.
#pragma once

#include "memsaver/interop/no_throw.hpp"

#include <cstddef>
#include <exception>
#include <string>

namespace memsaver::inline v0_2 {

/// `bytes` of the arena's memory, good on every stream at once. Null where there is no room, for 0 bytes, and where
/// `device` is not the arena's; `events` is told why. From null, PyTorch's caching allocator (a torch.cuda.MemPool over
/// these functions) gives back what it keeps, asks again, and then raises its own error. PyTorch without it (a
/// pluggable allocator in the place of the whole allocator) does not look at what it gets.
[[nodiscard]] inline void* pytorch_allocate(const Arena& arena, std::ptrdiff_t bytes, int device, StreamRef = {},
                                            const EventSink& events = {}) noexcept {
    if (bytes <= 0) return nullptr;
    if (arena && arena.device() != device) {
        detail::tell(events, [&] {
            return Event{EventKind::ignored, arena.tag(), device,
                         "memory on device " + std::to_string(device) + " was asked of tag \"" + arena.tag() +
                             "\" on device " + std::to_string(arena.device())};
        });
        return nullptr;
    }
    return allocate_or_null(arena, static_cast<std::size_t>(bytes), events);
}

/// Gives back what `pytorch_allocate` answered, paused or not. It can be handed out again once `stream` has passed
/// here: PyTorch gives the stream that the memory was allocated on. A program that uses it on other streams as well
/// orders those before its free, as it does for PyTorch's own allocator. What goes wrong goes to the saver's event
/// sink.
inline void pytorch_deallocate(const Arena& arena, void* pointer, std::ptrdiff_t, int, StreamRef stream) noexcept {
    deallocate_or_tell(arena, pointer, stream);
}

/// The same where the memory may be of any tag of the saver. `events` is told what goes wrong.
template <class D>
void pytorch_deallocate(MemorySaver<D>& saver, void* pointer, std::ptrdiff_t, int device, StreamRef stream,
                        const EventSink& events = {}) noexcept {
    const auto tell_why = [&](const char* why) {
        detail::tell(events, [&] { return Event{EventKind::ignored, "", device, why}; });
    };
    try {
        try {
            saver.deallocate(pointer, stream);
        } catch (const Misuse&) {
            throw;
        } catch (const Error&) { // a stream that cannot be marked is no reason to keep the memory
            saver.deallocate(pointer);
        }
    } catch (const std::exception& error) {
        tell_why(error.what());
    } catch (...) { // a user's policy or driver may throw anything
        tell_why("a deallocation failed for a reason unknown");
    }
}

} // namespace memsaver::inline v0_2
