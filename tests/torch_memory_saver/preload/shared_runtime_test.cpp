// A program with a shared CUDA runtime, under the preload library.
#include "host_cudart.hpp"
#include "loaded.hpp"
#include "processes.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>

namespace torch_memory_saver_preload_shared_runtime_test {
using namespace test;

TEST_CASE("outside of a region, and for foreign pointers, the runtime's own are called") {
    const unsigned long before = plain_calls();
    void* plain = nullptr;
    REQUIRE(cudaMalloc(&plain, mib) == 0);
    CHECK(plain_calls() == before + 1);
    CHECK(cudaFree(plain) == 0);
    CHECK(cudaFree(nullptr) == 0);
    void* too_much = nullptr;
    CHECK(cudaMalloc(&too_much, 4096 * mib) == 2);
}

TEST_CASE("in a region, memory that can be paused") {
    const Interface tms;
    tms.enter("weights");
    const std::size_t before = free_bytes();
    void* block = nullptr;
    REQUIRE(cudaMalloc(&block, 64 * mib) == 0);
    tms.leave();
    std::memset(block, 42, 64 * mib); // it is host memory
    CHECK(before - free_bytes() >= 64 * mib);
    CHECK(tms.pause("weights") == 0);
    CHECK(tms.pause("weights") == 0);
    CHECK(before - free_bytes() < 8 * mib);
    const unsigned char* kept = tms.backup(block, 64 * mib);
    REQUIRE(kept != nullptr);
    CHECK(kept[64 * mib - 1] == 42);
    CHECK(tms.resume("weights") == 0);
    CHECK(static_cast<unsigned char*>(block)[64 * mib - 1] == 42);
    CHECK(tms.pause("nobody") == 0); // reported as unknown, but not a failure
    CHECK(cudaFree(static_cast<char*>(block) + 512) == 1);
    CHECK(cudaFree(block) == 0);
    CHECK(cudaFree(block) == 1);
    CHECK(before - free_bytes() < 8 * mib);
}

TEST_CASE("results are codes, not exceptions") {
    const Interface tms;
    tms.region(true);
    int rubbish = 0;
    void* block = &rubbish;
    CHECK(cudaMalloc(&block, 0) == 0);
    CHECK(block == nullptr);
    CHECK(cudaMalloc(nullptr, 1) == 1);
    CHECK(cudaMalloc(&block, 4096 * mib) == 2);
    CHECK(block == nullptr);
    tms.tag("big");
    REQUIRE(cudaMalloc(&block, 700 * mib) == 0);
    tms.region(false);
    CHECK(tms.pause("big") == 0);
    void* meanwhile = nullptr;
    REQUIRE(cudaMalloc(&meanwhile, 700 * mib) == 0);
    CHECK(tms.resume("big") == 2); // out of memory: an error, and the process continues
    CHECK(cudaFree(meanwhile) == 0);
    CHECK(tms.resume("big") == 0);
    CHECK(cudaFree(block) == 0);
}

TEST_CASE("settings are a thread's own, and read as they were set") {
    const Interface tms;
    tms.tag("mine");
    tms.region(true);
    std::thread{[&] {
        CHECK(!symbol<bool()>("tms_get_interesting_region")());
        CHECK(std::strcmp(symbol<const char*()>("tms_get_current_tag")(), "default") == 0);
    }}.join();
    CHECK(symbol<bool()>("tms_get_interesting_region")());
    CHECK(std::strcmp(symbol<const char*()>("tms_get_current_tag")(), "mine") == 0);
    tms.tag(""); // an empty name: unchanged
    CHECK(std::strcmp(symbol<const char*()>("tms_get_current_tag")(), "mine") == 0);
    tms.region(false);
    const auto set_backend = symbol<void(const char*)>("tms_set_cpu_backup_backend");
    const auto backend = symbol<const char*()>("tms_get_cpu_backup_backend");
    set_backend("mmap");
    CHECK(std::strcmp(backend(), "mmap") == 0);
    set_backend("floppy");
    CHECK(std::strcmp(backend(), "mmap") == 0);
    set_backend("pinned");
    CHECK(std::strcmp(backend(), "pinned") == 0);
}

TEST_CASE("devices") {
    const Interface tms;
    void* first = nullptr;
    void* second = nullptr;
    const std::size_t before = free_bytes();
    tms.region(true);
    tms.tag("both");
    REQUIRE(cudaMalloc(&first, 8 * mib) == 0);
    REQUIRE(cudaSetDevice(1) == 0);
    REQUIRE(cudaMalloc(&second, 64 * mib) == 0);
    tms.region(false);
    CHECK(tms.pause("both") == 0);
    int device = 0;
    CHECK(cudaGetDevice(&device) == 0);
    CHECK(device == 1);
    CHECK(tms.resume("both") == 0);
    std::memset(first, 1, 8 * mib);
    std::memset(second, 1, 64 * mib);
    CHECK(cudaSetDevice(0) == 0);
    CHECK(before - free_bytes() < 64 * mib); // the first device's
    CHECK(cudaFree(first) == 0);
    CHECK(cudaFree(second) == 0);
}

Allocating through_the_runtime() {
    return {Interface{},
            [](std::size_t bytes) {
                void* block = nullptr;
                return cudaMalloc(&block, bytes) == 0 ? block : nullptr;
            },
            [](void* block) { (void)cudaFree(block); }};
}

TEST_CASE("fork: a child frees its parent's memory at once, whatever the parent's threads were in the middle of") {
    check_forks(through_the_runtime());
}

TEST_CASE("cancelled threads end after the call that they are in") { check_cancellation(through_the_runtime()); }

TEST_CASE("by default the driver's allocations are not intercepted") {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    Dl_info info{};
    REQUIRE(::dladdr(::dlsym(driver, "cuMemAlloc_v2"), &info) != 0);
    CHECK(std::string{info.dli_fname}.find("libcuda.so.1") != std::string::npos);
}
} // namespace torch_memory_saver_preload_shared_runtime_test
