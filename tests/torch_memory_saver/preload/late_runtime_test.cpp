// A program that calls the preload library before it has loaded a CUDA runtime, and loads one later.
#include "loaded.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

namespace torch_memory_saver_preload_late_runtime_test {
using namespace test;

TEST_CASE("functions that were not loaded before are found later") {
    constexpr int not_initialized = 3;
    const Interface tms;
    const auto allocate = symbol<int(void**, std::size_t)>("cudaMalloc");
    const auto free = symbol<int(void*)>("cudaFree");
    void* block = nullptr;
    CHECK(allocate(&block, mib) == not_initialized);
    CHECK(free(nullptr) == not_initialized);
    tms.enter("late", false);
    CHECK(allocate(&block, mib) == not_initialized);

    REQUIRE_MESSAGE(::dlopen(std::getenv("MEMSAVER_HOST_CUDART"), RTLD_NOW | RTLD_LOCAL) != nullptr, ::dlerror());
    REQUIRE(allocate(&block, mib) == 0);
    std::memset(block, 1, mib);
    CHECK(free(block) == 0);
    tms.region(false);
    REQUIRE(allocate(&block, mib) == 0);
    CHECK(free(block) == 0);
    CHECK(free(nullptr) == 0);
}
} // namespace torch_memory_saver_preload_late_runtime_test
