// An arena as a memory resource of CCCL (cuda::mr), for CCCL's containers and algorithms and for RMM. Supports both
// generations of the concepts: those of CCCL 3.0 (CUDA 13.0 toolkit) and the newer ones. Needs CCCL's headers.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/interop/no_throw.hpp"

#include <cuda/memory_resource>
#include <cuda/std/version>
#include <cuda/stream_ref>

#include <cstddef>
#include <utility>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "CCCL before 3.1 needs LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE, defined everywhere, for cuda::mr"
#endif

namespace memsaver::inline v0_3 {

/// A memory resource over the device memory of one arena. Copyable; copies compare equal and keep the saver's core
/// alive. Thread-safe.
///
/// Memory allocated without a stream is usable on every stream at once. Memory allocated with a stream may be a block
/// that this stream has freed and still uses: it is usable by work submitted to the stream next, and by other streams
/// once they are ordered after it. Allocating throws as Arena::allocate (OutOfMemory if memory is exhausted); 0 bytes
/// return null.
///
/// Deallocating never throws or waits, and is allowed while the memory is paused. With a stream, the block is reused
/// once that stream has completed all work submitted to it before the call; without one, once the device has, as safe
/// as cudaFree. The size and alignment arguments of deallocation are ignored.
class ArenaResource {
public:
    /// The default alignment in bytes.
    static constexpr std::size_t default_alignment = detail::Request::default_alignment;
#if CCCL_VERSION >= 3002000
    using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>; // so that make_buffer<T> needs no
                                                                                    // explicit properties
#endif

    explicit ArenaResource(Arena arena) noexcept : arena_{std::move(arena)} {}
    /// Uses the region's arena; may outlive the region.
    explicit ArenaResource(const Region& region) noexcept : arena_{region.arena()} {}

    // --- cuda::mr::resource of CCCL 3.1 and later: stream-ordered ---

    /// Allocates `bytes` aligned to `alignment`, in stream order.
    [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = default_alignment) {
        return take(bytes, alignment, stream);
    }
    /// Frees a block in stream order: it is reused once `stream` has completed all work submitted to it before this
    /// call.
    void deallocate(cuda::stream_ref stream, void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
        deallocate_or_report(arena_, pointer, stream.get());
    }

    // --- cuda::mr::synchronous_resource of CCCL 3.1 and later ---

    /// Allocates `bytes` aligned to `alignment`, usable on every stream at once.
    [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        return take(bytes, alignment);
    }
    /// Frees a block. It is reused once the device has completed all work submitted to it before this call. Does not
    /// wait.
    void deallocate_sync(void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
        arena_.deallocate_quietly(pointer);
    }

    // --- cuda::mr::resource of CCCL 3.0 ---

    /// Same as `allocate_sync`.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = default_alignment) {
        return take(bytes, alignment);
    }
    /// Same as `deallocate_sync`.
    void deallocate(void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
        arena_.deallocate_quietly(pointer);
    }

    // --- cuda::mr::async_resource of CCCL 3.0 ---

    /// Same as `allocate` with a stream.
    [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
        return take(bytes, alignment, stream);
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
        return take(bytes, default_alignment, stream);
    }
    /// Same as `deallocate` with a stream.
    void deallocate_async(void* pointer, std::size_t, std::size_t, cuda::stream_ref stream) noexcept {
        deallocate_or_report(arena_, pointer, stream.get());
    }
    void deallocate_async(void* pointer, std::size_t, cuda::stream_ref stream) noexcept {
        deallocate_or_report(arena_, pointer, stream.get());
    }

    /// The arena that the resource allocates from.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

    friend bool operator==(const ArenaResource& a, const ArenaResource& b) noexcept { return a.arena_ == b.arena_; }
    friend constexpr void get_property(const ArenaResource&, cuda::mr::device_accessible) noexcept {}

private:
    [[nodiscard]] void* take(std::size_t bytes, std::size_t alignment) const {
        return bytes == 0 ? nullptr : arena_.allocate(bytes, alignment);
    }
    [[nodiscard]] void* take(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) const {
        return bytes == 0 ? nullptr : arena_.allocate(bytes, StreamRef{stream.get()}, alignment);
    }

    Arena arena_;
};

#if CCCL_VERSION < 3001000
static_assert(cuda::mr::resource_with<ArenaResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<ArenaResource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::synchronous_resource_with<ArenaResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<ArenaResource, cuda::mr::device_accessible>);
#endif

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
