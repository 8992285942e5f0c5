// A list whose capacity is chosen once, so that its elements need not be movable.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace memsaver::inline v0_3::detail {

template <class T>
class FixedList {
public:
    /// Throws std::bad_alloc.
    explicit FixedList(std::size_t capacity) : first_{std::allocator<T>{}.allocate(capacity)}, capacity_{capacity} {}
    FixedList(const FixedList&) = delete;
    FixedList& operator=(const FixedList&) = delete;
    ~FixedList() {
        clear();
        std::allocator<T>{}.deallocate(first_, capacity_);
    }

    /// There must be capacity left.
    template <class... Args>
    T& emplace_back(Args&&... args) {
        T* const at = std::construct_at(first_ + size_, std::forward<Args>(args)...);
        ++size_;
        return *at;
    }

    /// Keeps the capacity.
    void clear() noexcept {
        for (T& each : *this) each.~T();
        size_ = 0;
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] T& operator[](std::size_t i) noexcept { return first_[i]; }
    [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return first_[i]; }
    [[nodiscard]] T& back() noexcept { return first_[size_ - 1]; }
    [[nodiscard]] const T* data() const noexcept { return first_; }
    [[nodiscard]] T* begin() noexcept { return first_; }
    [[nodiscard]] T* end() noexcept { return first_ + size_; }
    [[nodiscard]] const T* begin() const noexcept { return first_; }
    [[nodiscard]] const T* end() const noexcept { return first_ + size_; }

private:
    T* first_;
    std::size_t capacity_;
    std::size_t size_ = 0;
};

} // namespace memsaver::inline v0_3::detail
