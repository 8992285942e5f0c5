// PyTorch mode's library, loaded as PyTorch's pluggable allocator does.
#include "loaded.hpp"
#include "processes.hpp"

#include <doctest/doctest.h>

#include <sys/types.h>

#include <cstdlib>
#include <cstring>

namespace torch_memory_saver_preload_torch_mode_test {
using namespace test;

TEST_CASE("memory in and outside of a region") {
    void* const library = ::dlopen(std::getenv("MEMSAVER_TMS_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library != nullptr, ::dlerror());
    const Interface tms{library};
    const auto allocate = symbol<void*(ssize_t, int, void*)>("tms_torch_malloc", library);
    const auto free = symbol<void(void*, ssize_t, int, void*)>("tms_torch_free", library);
    constexpr ssize_t bytes = 8 << 20;

    void* const plain = allocate(bytes, 0, nullptr);
    REQUIRE(plain != nullptr);
    tms.enter("a");
    void* const block = allocate(bytes, 1, nullptr);
    REQUIRE(block != nullptr);
    CHECK(allocate(0, 0, nullptr) == nullptr);
    CHECK(allocate(-1, 0, nullptr) == nullptr);
    CHECK(allocate(ssize_t{4} << 30, 0, nullptr) == nullptr);
    CHECK(allocate(bytes, 7, nullptr) == nullptr); // there is no such device
    tms.region(false);
    std::memset(plain, 1, bytes);
    std::memset(block, 2, bytes);
    CHECK(tms.pause() == 0);
    CHECK(static_cast<unsigned char*>(plain)[bytes - 1] == 1);
    REQUIRE(tms.backup(block, bytes) != nullptr);
    CHECK(tms.backup(block, bytes)[bytes - 1] == 2);
    CHECK(tms.resume() == 0);
    CHECK(static_cast<unsigned char*>(block)[bytes - 1] == 2);
    free(block, bytes, 1, nullptr);
    free(plain, bytes, 0, nullptr);
    free(nullptr, 0, 0, nullptr);
}

Allocating through_the_allocator() {
    void* const library = ::dlopen(std::getenv("MEMSAVER_TMS_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library != nullptr, ::dlerror());
    auto* const allocate = symbol<void*(ssize_t, int, void*)>("tms_torch_malloc", library);
    auto* const free = symbol<void(void*, ssize_t, int, void*)>("tms_torch_free", library);
    return {Interface{library}, [=](std::size_t bytes) { return allocate(static_cast<ssize_t>(bytes), 0, nullptr); },
            [=](void* block) { free(block, 0, 0, nullptr); }};
}

TEST_CASE("fork: a child frees its parent's memory at once, whatever the parent's threads were in the middle of") {
    check_forks(through_the_allocator());
}

TEST_CASE("cancelled threads end after the call that they are in") { check_cancellation(through_the_allocator()); }
} // namespace torch_memory_saver_preload_torch_mode_test
