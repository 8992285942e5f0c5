// Replaces operator new for this test program.
#include "failing_new.hpp"

#include <vector>

namespace no_memory_failing_new_test {

static void* allocate(std::size_t bytes) {
    if (no_memory::countdown >= 0 && no_memory::countdown-- == 0) throw std::bad_alloc{};
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc{};
}

} // namespace no_memory_failing_new_test

void* operator new(std::size_t bytes) { return no_memory_failing_new_test::allocate(bytes); }
void* operator new[](std::size_t bytes) { return no_memory_failing_new_test::allocate(bytes); }
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

namespace no_memory_failing_new_test {

TEST_CASE("operator new fails when it is told to, once for each allocation") {
    std::vector<int> one;
    std::vector<int> two;
    int unchanged = 0;
    const int failures = no_memory::sweep(
        [&] {
            one = std::vector<int>(10);
            two = std::vector<int>(10);
        },
        [&] { ++unchanged; });
    CHECK(failures == 2);
    CHECK(unchanged == 2);
}

} // namespace no_memory_failing_new_test
