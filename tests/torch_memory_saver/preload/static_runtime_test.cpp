// A program that is linked with a static CUDA runtime, under the preload library with MEMSAVER_DRIVER_MIN_BYTES=65536.
#include "host_cudart.hpp"
#include "loaded.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

namespace torch_memory_saver_preload_static_runtime_test {
using namespace test;

bool in_preload(void* function) {
    Dl_info info{};
    return ::dladdr(function, &info) != 0 &&
           std::string{info.dli_fname}.find("torch_memory_saver_hook_mode_preload") != std::string::npos;
}

TEST_CASE("functions looked up in the driver, in both ways, are the shim's") {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver != nullptr);
    CHECK(in_preload(::dlsym(driver, "cuMemAlloc_v2")));
    CHECK(in_preload(::dlsym(driver, "cuMemFree_v2")));
    CHECK(in_preload(::dlsym(driver, "cuGetProcAddress_v2")));
    CHECK(in_preload(::dlsym(driver, "cuGetProcAddress")));
    CHECK(!in_preload(::dlsym(driver, "cuDriverGetVersion")));
    CHECK(::dlsym(driver, "cuNoSuchThing") == nullptr);
    void* const other = ::dlopen("libm.so.6", RTLD_NOW);
    REQUIRE(other != nullptr);
    CHECK(::dlsym(other, "cuMemAlloc_v2") == nullptr); // symbols that a library lacks stay missing
    const auto get = symbol<int(const char*, void**, int, std::uint64_t, void*)>("cuGetProcAddress_v2", driver);
    void* found = nullptr;
    for (const char* name : {"cuMemAlloc", "cuMemFree", "cuMemFreeAsync", "cuGetProcAddress"}) {
        CAPTURE(name);
        CHECK(get(name, &found, 13000, 0, nullptr) == 0);
        CHECK(in_preload(found));
    }
    CHECK(get("cuMemGetInfo", &found, 13000, 0, nullptr) == 0);
    CHECK(!in_preload(found));
    // cuGetProcAddress finds itself.
    REQUIRE(get("cuGetProcAddress", &found, 11030, 0, nullptr) == 0);
    const auto older = reinterpret_cast<int (*)(const char*, void**, int, std::uint64_t)>(found);
    CHECK(older("cuMemAlloc", &found, 3020, 0) == 0);
    CHECK(in_preload(found));
}

TEST_CASE("RTLD_NEXT still means the library after the caller's") {
    // This program is first in the search order, so the next object that has `dlsym` is the preload library.
    CHECK(in_preload(::dlsym(RTLD_NEXT, "dlsym")));
    // Resolved relative to this program, not to the preload library, whose next object would be the C library.
    CHECK(in_preload(::dlsym(RTLD_NEXT, "cudaMalloc")));
}

TEST_CASE("allocations of the size that was set are taken, in regions; memsaver's own are not") {
    const Interface tms;
    void* outside = nullptr;
    REQUIRE(cudaMalloc(&outside, mib) == 0);
    const unsigned long before = plain_calls();
    tms.enter("static");
    void* small = nullptr;
    void* large = nullptr;
    REQUIRE(cudaMalloc(&small, 65535) == 0);
    CHECK(plain_calls() == before + 1);
    REQUIRE(cudaMalloc(&large, 65536) == 0);
    CHECK(plain_calls() == before + 1);
    tms.cpu_backup(false);
    std::memset(small, 1, 65535);
    std::memset(large, 2, 65536);
    CHECK(tms.pause() == 0); // still in the region: memsaver's own driver calls must not be intercepted
    CHECK(static_cast<unsigned char*>(small)[65534] == 1);
    CHECK(tms.backup(large, 65536) != nullptr);
    CHECK(tms.backup(small, 65535) == nullptr);
    CHECK(tms.resume() == 0);
    CHECK(static_cast<unsigned char*>(large)[65535] == 2);
    CHECK(cudaFree(large) == 0); // waits through the driver
    CHECK(cudaFree(large) == 1);
    REQUIRE(cudaMalloc(&large, 65536) == 0);
    tms.region(false);
    CHECK(host_cudart_free_async(large) == 0);
    CHECK(cudaFree(small) == 0);
    CHECK(cudaFree(outside) == 0);
}

TEST_CASE("the driver's allocations can use pages that no block needs") {
    const Interface tms;
    tms.enter("static", false);
    void* block = nullptr;
    REQUIRE(cudaMalloc(&block, 600 * mib) == 0);
    tms.region(false);
    CHECK(host_cudart_free_async(block) == 0); // kept for the tag's next allocation
    CHECK(free_bytes() < 500 * mib);
    void* plain = nullptr;
    REQUIRE(cudaMalloc(&plain, 700 * mib) == 0);
    CHECK(cudaFree(plain) == 0);
    CHECK(cudaMalloc(&plain, 4096 * mib) == 2);
}

TEST_CASE("paused from outside") {
    const char* const path = std::getenv("MEMSAVER_CONTROL");
    REQUIRE(path != nullptr);
    std::string pipe = path;
    if (const auto at = pipe.find("%p"); at != std::string::npos) pipe.replace(at, 2, std::to_string(::getpid()));
    const Interface tms;
    tms.enter("outside");
    void* block = nullptr;
    REQUIRE(cudaMalloc(&block, 8 * mib) == 0);
    std::memset(block, 7, 8 * mib);
    tms.region(false);
    // Ends by the test's time limit if the reply never arrives.
    const auto tell = [&](const std::string& command, const std::string& answer) {
        std::ofstream{pipe} << command << '\n' << std::flush;
        std::string state;
        while (state != answer) {
            std::ifstream file{pipe + ".state"};
            std::getline(file, state);
            std::this_thread::yield();
        }
    };
    tell("pause outside", "1 pause outside 0");
    CHECK(tms.backup(block, 8 * mib) != nullptr);
    tell("resume outside", "2 resume outside 0");
    CHECK(tms.backup(block, 8 * mib) == nullptr);
    CHECK(static_cast<unsigned char*>(block)[8 * mib - 1] == 7);
    tell("stop outside", "3 stop outside 1");
    CHECK(cudaFree(block) == 0);
}
} // namespace torch_memory_saver_preload_static_runtime_test
