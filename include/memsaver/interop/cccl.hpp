// An arena as a memory resource of CCCL (cuda::mr), for its containers, its algorithms, and RMM's. Knows both
// generations of the concepts: those of CCCL 3.0, the CUDA 13.0 toolkit's, and the newer ones. Needs CCCL's headers.
#pragma once

#include "memsaver/interop/no_throw.hpp"

#include <cuda/memory_resource>
#include <cuda/std/version>
#include <cuda/stream_ref>

#include <cstddef>
#include <utility>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "CCCL before 3.1 shows cuda::mr only with LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE defined everywhere"
#endif

namespace memsaver::inline v0_2 {

/// Device memory of one arena. Copyable; copies are equal, and keep the saver's core alive. Thread safe.
///
/// Allocating without a stream gives a block that nothing can touch any more, so it is good on every stream at once.
/// With a stream it may be one that this stream has freed and not passed: it is good for what the stream is given next,
/// and for other streams once they have waited for it. Throws what Arena::allocate throws (OutOfMemory where there is
/// no room); 0 bytes are null.
///
/// Deallocating never throws nor waits, and may be done while the memory is paused. With a stream, the block is handed
/// out again once that stream has passed here; without, once all the work of the device so far has, as safe as
/// cudaFree. Sizes and alignments of what is given back are not looked at.
class ArenaResource {
public:
    /// The alignment where none is asked for, in bytes.
    static constexpr std::size_t default_alignment = detail::Request::default_alignment;
#if CCCL_VERSION >= 3002000
    using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>; // so that make_buffer<T> needs none
#endif

    explicit ArenaResource(Arena arena) noexcept : arena_{std::move(arena)} {}
    /// Of the region's arena; may outlive the region.
    explicit ArenaResource(const Region& region) noexcept : arena_{region.arena()} {}

    // --- cuda::mr::resource of CCCL 3.1 and later: in a stream's order ---

    /// `bytes` at a multiple of `alignment`, in the order of `stream`.
    [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = default_alignment) {
        return take(bytes, alignment, stream);
    }
    /// The block can be handed out again once `stream` has passed here.
    void deallocate(cuda::stream_ref stream, void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
        deallocate_or_tell(arena_, pointer, stream.get());
    }

    // --- cuda::mr::synchronous_resource of CCCL 3.1 and later ---

    /// `bytes` at a multiple of `alignment`, good on every stream at once.
    [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        return take(bytes, alignment);
    }
    /// The block can be handed out again once the device's work so far has passed. Does not wait.
    void deallocate_sync(void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
        arena_.deallocate_quietly(pointer);
    }

    // --- cuda::mr::resource of CCCL 3.0 ---

    /// As `allocate_sync`.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = default_alignment) {
        return take(bytes, alignment);
    }
    /// As `deallocate_sync`.
    void deallocate(void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
        arena_.deallocate_quietly(pointer);
    }

    // --- cuda::mr::async_resource of CCCL 3.0 ---

    /// As `allocate` with a stream.
    [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
        return take(bytes, alignment, stream);
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
        return take(bytes, default_alignment, stream);
    }
    /// As `deallocate` with a stream.
    void deallocate_async(void* pointer, std::size_t, std::size_t, cuda::stream_ref stream) noexcept {
        deallocate_or_tell(arena_, pointer, stream.get());
    }
    void deallocate_async(void* pointer, std::size_t, cuda::stream_ref stream) noexcept {
        deallocate_or_tell(arena_, pointer, stream.get());
    }

    /// The arena that it allocates from.
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

} // namespace memsaver::inline v0_2
