// Replaces operator new for this test program.
#include "failing_new.hpp"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace no_memory_failing_new_test {

static void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    if (no_memory::countdown >= 0 && no_memory::countdown-- == 0) throw std::bad_alloc{};
    const std::size_t whole = (bytes / alignment + 1) * alignment;
    if (void* memory = std::aligned_alloc(alignment, whole)) return memory;
    throw std::bad_alloc{};
}

} // namespace no_memory_failing_new_test

void* operator new(std::size_t bytes) { return no_memory_failing_new_test::allocate(bytes); }
void* operator new[](std::size_t bytes) { return no_memory_failing_new_test::allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return no_memory_failing_new_test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return no_memory_failing_new_test::allocate(bytes);
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

namespace no_memory_failing_new_test {

TEST_CASE("operator new fails when it is told to, once for each allocation") {
    struct alignas(64) Line {
        int value = 0;
    };
    std::vector<int> one;
    std::unique_ptr<Line> two;
    int unchanged = 0;
    const int failures = no_memory::sweep(
        [&] {
            one = std::vector<int>(10);
            two = std::make_unique<Line>();
        },
        [&] { ++unchanged; });
    CHECK(failures == 2);
    CHECK(unchanged == 2);
}

} // namespace no_memory_failing_new_test
