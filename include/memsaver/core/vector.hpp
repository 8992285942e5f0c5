// A vector for the inside of the library. std::vector took a third of the time in which a compiler reads memsaver; this
// one has only what is used here, and grows by one function for all types (docs/decisions/0031-weight.md).
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Memory for a vector's elements, which are not its own. The constructor is the part of growth that all vectors share.
struct VectorMemory {
    /// For at least `wanted` elements, and for twice as many as the vector had room for `before`. Throws
    /// std::bad_alloc.
    [[gnu::noinline]] VectorMemory(std::size_t before, std::size_t wanted, std::size_t bytes_of_one)
        : capacity{wanted < 2 * before ? 2 * before : wanted} {
        if (capacity > static_cast<std::size_t>(-1) / bytes_of_one) throw std::bad_alloc{};
        const std::size_t bytes = capacity * bytes_of_one;
        first = ::operator new(bytes);
    }
    VectorMemory& operator=(VectorMemory&&) = delete;
    ~VectorMemory() { ::operator delete(first); }

    void* first = nullptr;
    std::size_t capacity;
};

/// Like std::vector, but for: iterators are pointers; elements that cannot be moved are allowed, up to what was
/// reserved; inserting in the middle takes swaps. Copies and growth throw std::bad_alloc; growth has the strong
/// guarantee.
template <class T>
class Vector {
public:
    using value_type = T;
    using iterator = T*;
    using const_iterator = const T*;

    Vector() noexcept = default;
    explicit Vector(std::size_t count) : Vector{} {
        reserve(count);
        while (size_ < count) add();
    }
    Vector(std::initializer_list<T> items) : Vector{} { append(items.begin(), items.end()); }
    template <class Iterator>
    Vector(Iterator first, Iterator last) : Vector{} {
        append(first, last);
    }
    Vector(const Vector& other) : Vector{} { append(other.begin(), other.end()); }
    Vector(Vector&& other) noexcept { swap(other); }
    Vector& operator=(const Vector& other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    Vector& operator=(Vector&& other) noexcept {
        Vector old{std::move(other)};
        swap(old);
        return *this;
    }
    ~Vector() {
        clear();
        ::operator delete(data_);
    }

    void swap(Vector& other) noexcept {
        T* const data = data_; // not std::swap, which has traits for each T*
        data_ = other.data_;
        other.data_ = data;
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] T* data() noexcept { return data_; }
    [[nodiscard]] const T* data() const noexcept { return data_; }
    [[nodiscard]] T* begin() noexcept { return data_; }
    [[nodiscard]] T* end() noexcept { return data_ + size_; }
    [[nodiscard]] const T* begin() const noexcept { return data_; }
    [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
    [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
    [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
    [[nodiscard]] T& front() noexcept { return data_[0]; }
    [[nodiscard]] const T& front() const noexcept { return data_[0]; }
    [[nodiscard]] T& back() noexcept { return data_[size_ - 1]; }
    [[nodiscard]] const T& back() const noexcept { return data_[size_ - 1]; }

    void reserve(std::size_t capacity) {
        if (capacity > capacity_) grow(capacity);
    }
    void resize(std::size_t size) {
        reserve(size);
        while (size_ < size) add();
        while (size_ > size) pop_back();
    }
    template <class... Args>
    T& emplace_back(Args&&... args) {
        if constexpr (std::is_move_constructible_v<T>) {
            if (size_ == capacity_) {
                VectorMemory grown{capacity_, size_ + 1, sizeof(T)}; // first: a thread is not made without a place
                // Before the others move: an argument may be one of them.
                ::new (static_cast<T*>(grown.first) + size_) T(static_cast<Args&&>(args)...);
                move_to(grown);
                return data_[size_++];
            }
        }
        return add(static_cast<Args&&>(args)...);
    }
    void push_back(const T& item) { emplace_back(item); }
    void push_back(T&& item) { emplace_back(std::move(item)); }
    /// The items must not lie in this vector.
    template <class Iterator>
    void append(Iterator first, Iterator last) {
        reserve(size_ + static_cast<std::size_t>(last - first));
        for (; first != last; ++first) add(*first);
    }
    template <class Iterator>
    void assign(Iterator first, Iterator last) {
        clear();
        append(first, last);
    }
    T* insert(const T* before, T item) {
        const auto place = static_cast<std::size_t>(before - data_);
        emplace_back(std::move(item));
        if constexpr (plain) { // lists of a hundred thousand places are shifted
            const T added = back();
            std::memmove(data_ + place + 1, data_ + place, (size_ - 1 - place) * sizeof(T));
            data_[place] = added;
        } else {
            for (T* at = end() - 1; at != data_ + place; --at) std::swap(at[0], at[-1]);
        }
        return data_ + place;
    }
    T* erase(const T* item) noexcept { return erase(item, item + 1); }
    T* erase(const T* first, const T* last) noexcept {
        T* const place = data_ + (first - data_);
        T* to = place;
        if constexpr (plain) {
            const auto behind = static_cast<std::size_t>(end() - last);
            if (behind != 0) std::memmove(place, last, behind * sizeof(T));
            to += behind;
        } else {
            for (T* from = data_ + (last - data_); from != end(); ++from) *to++ = std::move(*from);
        }
        while (end() != to) pop_back();
        return place;
    }
    void pop_back() noexcept { data_[--size_].~T(); }
    /// Keeps the capacity.
    void clear() noexcept {
        while (size_ != 0) pop_back();
    }

    [[nodiscard]] friend bool operator==(const Vector& a, const Vector& b) {
        if (a.size_ != b.size_) return false;
        for (std::size_t i = 0; i < a.size_; ++i)
            if (!(a[i] == b[i])) return false;
        return true;
    }

private:
    static constexpr bool plain = std::is_trivially_copyable_v<T>;

    /// Where there is room for it.
    template <class... Args>
    T& add(Args&&... args) {
        T* const item = ::new (static_cast<void*>(data_ + size_)) T(static_cast<Args&&>(args)...);
        ++size_;
        return *item;
    }
    void move_to(VectorMemory& grown) noexcept {
        if constexpr (plain) {
            if (size_ != 0) std::memcpy(grown.first, data_, size_ * sizeof(T));
        } else if constexpr (std::is_move_constructible_v<T>) {
            static_assert(std::is_nothrow_move_constructible_v<T>);
            for (std::size_t i = 0; i < size_; ++i) {
                ::new (static_cast<T*>(grown.first) + i) T(std::move(data_[i]));
                data_[i].~T();
            }
        }
        capacity_ = grown.capacity;
        void* const old = data_;
        data_ = static_cast<T*>(grown.first);
        grown.first = old;
    }

    void grow(std::size_t capacity) {
        static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
        VectorMemory grown{capacity_, capacity, sizeof(T)};
        move_to(grown);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

} // namespace memsaver::inline v0_3::detail
