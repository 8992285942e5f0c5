// Replaces operator new and delete of a program by ones that fail when `countdown` says so. For one of its files.
#pragma once

#include "countdown.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace test {

inline void* take(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    if (countdown >= 0 && countdown-- == 0) throw std::bad_alloc{};
    const std::size_t whole = (bytes / alignment + 1) * alignment;
    if (void* memory = std::aligned_alloc(alignment, whole)) return memory;
    throw std::bad_alloc{};
}

} // namespace test

void* operator new(std::size_t bytes) { return test::take(bytes); }
void* operator new[](std::size_t bytes) { return test::take(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return test::take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return test::take(bytes);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
