// An allocator for thrust's device containers and for the temporary memory of its algorithms, over an arena. Needs
// thrust's headers. For cuda::mr see cccl.hpp.
#pragma once

#include "memsaver/interop/no_throw.hpp"

#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>

#include <cstddef>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_2 {

/// As in `thrust::device_vector<T, ThrustAllocator<T>> vector{n, ThrustAllocator<T>{arena}}` and
/// `thrust::cuda::par(ThrustAllocator<char>{arena, stream}).on(stream)`. Copyable; copies are equal, and keep the
/// saver's core alive. Thread safe.
///
/// Without a stream, memory that is given back is handed out again once all the work of the device so far has passed,
/// as safe as cudaFree and without its wait; with one, once that stream has passed: that is for containers that are
/// used on this stream alone. Throws what Arena::allocate throws; giving back never throws, nor waits.
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
    /// `stream` is not owned; it must live until the last memory has been given back.
    ThrustAllocator(Arena arena, StreamRef stream) noexcept : arena_{std::move(arena)}, stream_{stream} {}
    template <class U>
    ThrustAllocator(const ThrustAllocator<U>& other) noexcept : arena_{other.arena()}, stream_{other.stream()} {}

    /// Memory for `count` elements, content undefined, good on every stream at once. 0 elements are null.
    [[nodiscard]] pointer allocate(size_type count) {
        if (count == 0) return pointer{};
        // Too many to count in bytes is more than any arena has, too.
        const bool countable = count <= std::numeric_limits<size_type>::max() / sizeof(T);
        const size_type bytes = countable ? count * sizeof(T) : std::numeric_limits<size_type>::max();
        return pointer{static_cast<T*>(arena_.allocate(bytes, alignment))};
    }
    /// Gives memory back in the order of `stream()`, or of the whole device without one. The count is not looked at.
    void deallocate(pointer data, size_type) noexcept {
        if (stream_) {
            deallocate_or_tell(arena_, data.get(), *stream_);
        } else {
            arena_.deallocate_quietly(data.get());
        }
    }

    /// The arena that it allocates from.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }
    /// The stream in whose order memory is given back; none: in that of the whole device.
    [[nodiscard]] const std::optional<StreamRef>& stream() const noexcept { return stream_; }

    /// One can give back what the other allocated, at the same moment.
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

} // namespace memsaver::inline v0_2
