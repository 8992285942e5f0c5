// Pointers to objects of the inside: std::unique_ptr is a tuple with a dozen
// traits for each type, and took a fifth of the time in which a compiler reads memsaver; std::make_shared took a tenth
// (docs/decisions/0031-weight.md).
#pragma once

#include <cstddef>
#include <memory>

namespace memsaver::inline v0_3::detail {

/// Like std::unique_ptr, but for: always `delete`, never an array; becomes a pointer to a base class without a check
/// that its destructor is virtual, which the compiler's warnings have.
template <class T>
class UniquePtr {
public:
    UniquePtr() noexcept = default;
    UniquePtr(std::nullptr_t) noexcept {}
    explicit UniquePtr(T* owned) noexcept : owned_{owned} {}
    UniquePtr(UniquePtr&& from) noexcept : owned_{from.release()} {}
    template <class Derived>
    UniquePtr(UniquePtr<Derived>&& from) noexcept : owned_{from.release()} {}
    template <class Derived>
    UniquePtr(std::unique_ptr<Derived>&& from) noexcept : owned_{from.release()} {}
    UniquePtr& operator=(UniquePtr&& from) noexcept {
        reset(from.release());
        return *this;
    }
    ~UniquePtr() {
        static_assert(sizeof(T) > 0);
        delete owned_;
    }

    /// A new T of these arguments.
    template <class... Arguments>
    [[nodiscard]] static UniquePtr make(Arguments&&... arguments) {
        return UniquePtr{new T(static_cast<Arguments&&>(arguments)...)};
    }

    [[nodiscard]] T* get() const noexcept { return owned_; }
    T* operator->() const noexcept { return owned_; }
    T& operator*() const noexcept { return *owned_; }
    explicit operator bool() const noexcept { return owned_ != nullptr; }
    friend bool operator==(const UniquePtr& a, std::nullptr_t) noexcept { return a.owned_ == nullptr; }

    [[nodiscard]] T* release() noexcept {
        T* const released = owned_;
        owned_ = nullptr;
        return released;
    }
    void reset(T* owned = nullptr) noexcept {
        T* const old = owned_;
        owned_ = owned;
        delete old;
    }

    /// Without memory for it, std::bad_alloc is thrown and the object deleted.
    template <class Base>
    operator std::shared_ptr<Base>() && {
        return std::shared_ptr<Base>{release()};
    }

private:
    T* owned_ = nullptr;
};

/// Like std::make_shared, which saves an allocation and takes a compiler twice as long for each type.
template <class T, class... Arguments>
[[nodiscard]] std::shared_ptr<T> new_shared(Arguments&&... arguments) {
    return std::shared_ptr<T>{new T(static_cast<Arguments&&>(arguments)...)};
}

} // namespace memsaver::inline v0_3::detail
