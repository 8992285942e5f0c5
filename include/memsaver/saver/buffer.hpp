// A typed array in an arena's memory.
#pragma once

#include "memsaver/saver/arena_handle.hpp"

#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_2 {

/// Owns `size()` elements of device memory, content undefined. Move-only; may outlive its region and its saver. The
/// host must not read or write through `data()`, unless the driver's memory is the host's.
template <class T>
class Buffer {
    static_assert(std::is_trivially_copyable_v<T>, "a Buffer holds what can be copied byte by byte");

public:
    Buffer() = default;

    /// `count` elements, at least one. Throws what Arena::allocate throws, and Misuse for a negative or too large
    /// count.
    template <std::integral Count>
    Buffer(const Arena& arena, Count count)
        : arena_{arena}, size_{checked(arena, count)}, data_{static_cast<T*>(
                                                           arena_.allocate(size_ * sizeof(T), alignment))} {}
    template <std::integral Count>
    Buffer(const Region& region, Count count) : Buffer{region.arena(), count} {}
    /// The same for work of `stream`; see Arena::allocate. Its end is as safe as cudaFree all the same, for it may have
    /// been used on other streams; `reset(stream)` gives it back in the stream's order.
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
        if (this != &other) {
            reset();
            arena_ = std::move(other.arena_);
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
        }
        return *this;
    }
    ~Buffer() { reset(); }

    /// Gives the memory up now, as `deallocate` does; what goes wrong goes to the saver's event sink.
    void reset() noexcept {
        if (data_ != nullptr) arena_.deallocate_quietly(data_);
        data_ = nullptr;
        size_ = 0;
    }
    /// Gives the memory up for reuse once `stream` has passed here. Throws as Arena::deallocate does.
    void reset(StreamRef stream) {
        if (data_ != nullptr) arena_.deallocate(data_, stream);
        data_ = nullptr;
        size_ = 0;
    }

    [[nodiscard]] T* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// `size()` elements in bytes.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

private:
    template <std::integral Count>
    static std::size_t checked(const Arena& arena, Count count) {
        const auto size = static_cast<std::size_t>(count);
        if (!std::in_range<std::size_t>(count) || size == 0 ||
            size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw detail::about_tag(arena.tag(),
                                    Misuse{"Buffer in tag \"" + arena.tag() + "\": " + std::to_string(count) +
                                           " elements of " + std::to_string(sizeof(T)) + " bytes cannot be"});
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

} // namespace memsaver::inline v0_2
