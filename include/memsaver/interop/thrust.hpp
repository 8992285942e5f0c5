// An allocator over an arena for thrust's device containers and for the temporary memory of its algorithms. Needs
// thrust's headers. For cuda::mr see cccl.hpp.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/interop/no_throw.hpp"

#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace memsaver::inline v0_3 {

/// An allocator for thrust, used as in `thrust::device_vector<T, ThrustAllocator<T>> vector{n,
/// ThrustAllocator<T>{arena}}` and `thrust::cuda::par(ThrustAllocator<char>{arena, stream}).on(stream)`. Copyable;
/// copies compare equal and keep the saver's core alive. Thread-safe.
///
/// Without a stream, freed memory is reused once the device has completed all work submitted to it before the free: as
/// safe as cudaFree, but without its wait. With a stream, once that stream has; use it for containers that are used on
/// this stream only. Allocating throws as Arena::allocate. Deallocating never throws or waits.
template <class T>
class ThrustAllocator {
public:
    using value_type = T;
    using pointer = thrust::device_ptr<T>;
    using const_pointer = thrust::device_ptr<const T>;
    using reference = thrust::device_reference<T>;
    using const_reference = thrust::device_reference<const T>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type; // moving a container never copies its elements
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;
    template <class U>
    struct rebind {
        using other = ThrustAllocator<U>;
    };

    explicit ThrustAllocator(Arena arena) noexcept : arena_{std::move(arena)} {}
    /// Does not own `stream`, which must outlive all memory of the allocator.
    ThrustAllocator(Arena arena, StreamRef stream) noexcept : arena_{std::move(arena)}, stream_{stream} {}
    template <class U>
    ThrustAllocator(const ThrustAllocator<U>& other) noexcept : arena_{other.arena()}, stream_{other.stream()} {}

    /// Allocates memory for `count` elements, with undefined content, usable on every stream at once. Returns null for
    /// 0.
    [[nodiscard]] pointer allocate(size_type count) {
        if (count == 0) return pointer{};
        // If the size in bytes overflows, request the maximum, which no arena has.
        const bool countable = count <= std::numeric_limits<size_type>::max() / sizeof(T);
        const size_type bytes = countable ? count * sizeof(T) : std::numeric_limits<size_type>::max();
        return pointer{static_cast<T*>(arena_.allocate(bytes, alignment))};
    }
    /// Frees memory in the order of `stream()`, or of the whole device without one. The count is ignored.
    void deallocate(pointer data, size_type) noexcept {
        if (stream_) {
            deallocate_or_report(arena_, data.get(), *stream_);
        } else {
            arena_.deallocate_quietly(data.get());
        }
    }

    /// The arena that the allocator allocates from.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }
    /// The stream in whose order memory is freed. Empty: device order.
    [[nodiscard]] const std::optional<StreamRef>& stream() const noexcept { return stream_; }

    /// Two allocators are equal if each can free the other's memory, in the same order.
    friend bool operator==(const ThrustAllocator& a, const ThrustAllocator& b) noexcept {
        return a.arena_ == b.arena_ && a.stream_ == b.stream_;
    }

private:
    static constexpr std::size_t alignment = alignof(T) > detail::Request::default_alignment
                                                 ? alignof(T)
                                                 : detail::Request::default_alignment;

    Arena arena_;
    std::optional<StreamRef> stream_;
};

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
