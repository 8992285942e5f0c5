// A program that is linked with a static CUDA runtime and does not use memsaver, except for the C functions that it
// looks up if the preload library is loaded. Paused from inside, or from outside through its control pipe.
//
//   static_runtime inside|outside      (README.md describes the environment)
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t bytes = std::size_t{1} << 30;

void require(bool held, const char* what) {
    if (held) return;
    std::fprintf(stderr, "static_runtime: %s\n", what);
    std::exit(1);
}

std::size_t used_mib() {
    std::size_t free = 0;
    std::size_t total = 0;
    require(cudaMemGetInfo(&free, &total) == cudaSuccess, "cudaMemGetInfo failed");
    return (total - free) >> 20;
}

bool all_are(const void* device, int value) {
    std::vector<unsigned char> host(bytes);
    require(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy failed");
    return std::all_of(host.begin(), host.end(), [&](unsigned char byte) { return byte == value; });
}

} // namespace

int main(int count, char** arguments) {
    const bool outside = count > 1 && std::strcmp(arguments[1], "outside") == 0;
    require(cudaFree(nullptr) == cudaSuccess, "no device");
    const std::size_t before = used_mib();
    void* block = nullptr;
    require(cudaMalloc(&block, bytes) == cudaSuccess, "cudaMalloc failed");
    require(cudaMemset(block, 42, bytes) == cudaSuccess, "cudaMemset failed");
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize failed");
    require(used_mib() >= before + 1024, "nothing was allocated");

    if (outside) {
        // Reports that it is idle, and waits for a line before it continues.
        std::printf("ready %d\n", static_cast<int>(::getpid()));
        std::fflush(stdout);
        char line[64];
        require(std::fgets(line, sizeof line, stdin) != nullptr, "standard input ended before a line was read");
    } else {
        using Call = int(const char*);
        auto* const pause = reinterpret_cast<Call*>(::dlsym(RTLD_DEFAULT, "tms_pause"));
        auto* const resume = reinterpret_cast<Call*>(::dlsym(RTLD_DEFAULT, "tms_resume"));
        require(pause != nullptr && resume != nullptr, "the preload library is not loaded");
        require(pause(nullptr) == 0, "tms_pause failed");
        require(used_mib() < before + 512,
                "the memory was not released: the driver's allocations were not intercepted");
        require(resume(nullptr) == 0, "tms_resume failed");
    }
    require(all_are(block, 42), "the bytes have changed");
    require(cudaFree(block) == cudaSuccess, "cudaFree failed");
    require(used_mib() < before + 512, "cudaFree released nothing");
    std::printf("static_runtime: passed\n");
}
