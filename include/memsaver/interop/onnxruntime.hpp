// An arena as an allocator of ONNX Runtime (OrtAllocator). Needs its C header, onnxruntime_c_api.h, and calls nothing
// of its library.
#pragma once

#include "memsaver/interop/no_throw.hpp"

#include <onnxruntime_c_api.h>

#include <cstddef>
#include <utility>

namespace memsaver::inline v0_2 {

/// Pass its address where an OrtAllocator* is wanted, such as to RegisterAllocator. It must stay where it is until the
/// last of its blocks has been freed; it keeps the saver's core alive. Thread safe.
///
/// Answers null where there is no room, and for 0 bytes: nothing may be thrown through a C interface. ONNX Runtime does
/// not look at it everywhere (CreateTensorAsOrtValue of 1.31 makes a tensor without memory), so watch `events`. Freed
/// blocks are handed out again once all the work that the device has by then has passed, as safe as cudaFree and
/// without its wait: ONNX Runtime names no stream when it frees.
class OnnxRuntimeAllocator : public OrtAllocator {
public:
    /// `info` says what the memory is: for a GPU, the name "Cuda", the type OrtDeviceAllocator and the arena's device.
    /// It must outlive this. `events` is told why memory could not be had.
    explicit OnnxRuntimeAllocator(Arena arena, const OrtMemoryInfo* info, EventSink events = {})
        : OrtAllocator{}, arena_{std::move(arena)}, info_{info}, events_{std::move(events)} {
        version = ORT_API_VERSION; // what newer versions may ask besides is null, and they do without
        Alloc = [](OrtAllocator* self, std::size_t bytes) noexcept -> void* {
            const auto& own = *static_cast<OnnxRuntimeAllocator*>(self);
            return allocate_or_null(own.arena_, bytes, own.events_);
        };
        Free = [](OrtAllocator* self, void* pointer) noexcept {
            static_cast<OnnxRuntimeAllocator*>(self)->arena_.deallocate_quietly(pointer);
        };
        Info = [](const OrtAllocator* self) noexcept { return static_cast<const OnnxRuntimeAllocator*>(self)->info_; };
    }
    OnnxRuntimeAllocator(const OnnxRuntimeAllocator&) = delete;
    OnnxRuntimeAllocator& operator=(const OnnxRuntimeAllocator&) = delete;

    /// The arena that it allocates from.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

private:
    Arena arena_;
    const OrtMemoryInfo* info_;
    EventSink events_;
};

} // namespace memsaver::inline v0_2
