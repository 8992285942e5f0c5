// `Buffer<T>`: owns a typed array in device memory.
#pragma once

#include "memsaver/saver/arena_handle.hpp"

#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3 {

/// Owns `size()` elements of device memory, uninitialized. Move-only; may outlive its region and its saver. The host
/// must not read or write through `data()`, unless the driver's memory is host memory.
template <class T>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>, "Buffer<T>: T must be trivially copyable");

public:
    Buffer() = default;

    /// Allocates `count` elements, at least one. Throws what Arena::allocate throws, and Misuse for a negative or too
    /// large count.
    template <std::integral Count>
    Buffer(const Arena& arena, Count count)
        : arena_{arena}, size_{checked(arena, count)}, data_{static_cast<T*>(
                                                           arena_.allocate(size_ * sizeof(T), alignment))} {}
    template <std::integral Count>
    Buffer(const Region& region, Count count) : Buffer{region.arena(), count} {}
    /// As above, for work of `stream`; see Arena::allocate. The destructor still frees as safely as cudaFree, because
    /// other streams may have used the block; `reset(stream)` frees it in stream order.
    template <std::integral Count>
    Buffer(const Arena& arena, Count count, StreamRef stream)
        : arena_{arena}, size_{checked(arena, count)}, data_{static_cast<T*>(
                                                           arena_.allocate(size_ * sizeof(T), stream, alignment))} {}
    template <std::integral Count>
    Buffer(const Region& region, Count count, StreamRef stream) : Buffer{region.arena(), count, stream} {}

    Buffer(Buffer&& other) noexcept
        : arena_{std::move(other.arena_)}, size_{std::exchange(other.size_, 0)}, data_{std::exchange(other.data_,
                                                                                                     nullptr)} {}
    Buffer& operator=(Buffer&& other) noexcept {
        Buffer taken{std::move(other)}; // what this had ends with it
        std::swap(arena_, taken.arena_);
        std::swap(data_, taken.data_);
        std::swap(size_, taken.size_);
        return *this;
    }
    ~Buffer() { reset(); }

    /// Frees the memory now, as `deallocate` does. Errors are reported to the saver's event sink.
    void reset() noexcept {
        if (data_ != nullptr) arena_.deallocate_quietly(data_);
        data_ = nullptr;
        size_ = 0;
    }
    /// Frees the memory for reuse once `stream` has completed all work submitted to it before this call. Throws as
    /// Arena::deallocate does.
    void reset(StreamRef stream) {
        if (data_ != nullptr) arena_.deallocate(data_, stream);
        data_ = nullptr;
        size_ = 0;
    }

    [[nodiscard]] T* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Returns the size of the array in bytes.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

private:
    template <std::integral Count>
    static std::size_t checked(const Arena& arena, Count count) {
        const auto size = static_cast<std::size_t>(count);
        if (!std::in_range<std::size_t>(count) || size == 0 ||
            size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            detail::misuse_of(arena.tag(),
                              {"Buffer in tag ", detail::in_quotes(arena.tag()), ": ", std::to_string(count),
                               " elements of ", detail::in_digits(sizeof(T)), " bytes cannot be allocated"});
        }
        return size;
    }

    static constexpr std::size_t alignment = alignof(T) > detail::Request::default_alignment
                                                 ? alignof(T)
                                                 : detail::Request::default_alignment;

    Arena arena_;
    std::size_t size_ = 0;
    T* data_ = nullptr;
};

} // namespace memsaver::inline v0_3
