// An arena as an allocator of ONNX Runtime (OrtAllocator). Needs its C header, onnxruntime_c_api.h, but does not link
// its library.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/interop/no_throw.hpp"

#include <onnxruntime_c_api.h>

#include <cstddef>
#include <utility>

namespace memsaver::inline v0_3 {

/// An OrtAllocator over an arena. Pass its address where an OrtAllocator* is expected, such as to RegisterAllocator.
/// Not movable; must outlive its last block. Keeps the saver's core alive. Thread-safe.
///
/// Allocation returns null for 0 bytes and if memory is exhausted, because a C interface cannot throw. ONNX Runtime
/// does not check for null everywhere (CreateTensorAsOrtValue of 1.31 makes a tensor without memory), so watch
/// `events`. Freed blocks are reused once the device has completed all work submitted to it before the free: as safe as
/// cudaFree, but without its wait. ONNX Runtime passes no stream when it frees.
class OnnxRuntimeAllocator : public OrtAllocator {
public:
    /// `info` describes the memory: for a GPU, the name "Cuda", the type OrtDeviceAllocator and the arena's device. It
    /// must outlive this object. Failed allocations are reported to `events`.
    explicit OnnxRuntimeAllocator(Arena arena, const OrtMemoryInfo* info, EventSink events = {})
        : OrtAllocator{}, arena_{std::move(arena)}, info_{info}, events_{std::move(events)} {
        version = ORT_API_VERSION; // entries that newer versions add are null, and ONNX Runtime works without them
        Alloc = [](OrtAllocator* self, std::size_t bytes) noexcept -> void* {
            const auto& own = *static_cast<OnnxRuntimeAllocator*>(self);
            return allocate_or_null(own.arena_, bytes, own.events_);
        };
        Free = [](OrtAllocator* self, void* pointer) noexcept {
            static_cast<OnnxRuntimeAllocator*>(self)->arena_.deallocate_quietly(pointer);
        };
        Info = [](const OrtAllocator* self) noexcept { return static_cast<const OnnxRuntimeAllocator*>(self)->info_; };
    }
    OnnxRuntimeAllocator& operator=(OnnxRuntimeAllocator&&) = delete;

    /// The arena that the allocator allocates from.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

private:
    Arena arena_;
    const OrtMemoryInfo* info_;
    EventSink events_;
};

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
