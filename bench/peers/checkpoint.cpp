// Saves another process' whole GPU state to its host memory and restores it, with the driver's own checkpoint calls.
// Prints one line of JSON.
//
//   peers_checkpoint <pid>
#include <cuda.h>

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void require(bool held, const std::string& what) {
    if (held) return;
    std::fprintf(stderr, "peers_checkpoint: %s\n", what.c_str());
    std::exit(1);
}

class Driver {
public:
    Driver() : library_{::dlopen("libcuda.so.1", RTLD_NOW)} { require(library_ != nullptr, "no CUDA driver"); }

    template <class... Arguments>
    void call(const char* name, Arguments... arguments) const {
        void* const found = ::dlsym(library_, name);
        require(found != nullptr, std::string{"the driver has no "} + name);
        const CUresult result = reinterpret_cast<CUresult (*)(Arguments...)>(found)(arguments...);
        require(result == CUDA_SUCCESS, std::string{name} + " failed: error " + std::to_string(result));
    }
    /// A step of a checkpoint that needs no arguments.
    double step(const char* name, int pid) const {
        const auto start = std::chrono::steady_clock::now();
        call(name, pid, static_cast<void*>(nullptr));
        return std::chrono::duration<double, std::milli>{std::chrono::steady_clock::now() - start}.count();
    }
    double free_mib() const {
        std::size_t free = 0;
        std::size_t total = 0;
        call("cuMemGetInfo_v2", &free, &total);
        return static_cast<double>(free) / (1 << 20);
    }

private:
    void* library_;
};

} // namespace

int main(int count, char** arguments) {
    require(count == 2, "<pid>");
    const int pid = std::atoi(arguments[1]);
    const Driver driver;
    driver.call("cuInit", 0U);
    CUdevice device = 0;
    CUcontext context = nullptr;
    driver.call("cuDeviceGet", &device, 0);
    driver.call("cuDevicePrimaryCtxRetain", &context, device);
    driver.call("cuCtxPushCurrent_v2", context);
    const double before = driver.free_mib();
    const double lock = driver.step("cuCheckpointProcessLock", pid);
    const double checkpoint = driver.step("cuCheckpointProcessCheckpoint", pid);
    const double given_back = driver.free_mib() - before;
    const double restore = driver.step("cuCheckpointProcessRestore", pid);
    const double unlock = driver.step("cuCheckpointProcessUnlock", pid);
    std::printf("{\"pause_ms\": %.4f, \"resume_ms\": %.4f, \"given_back_mib\": %.1f}\n", lock + checkpoint,
                restore + unlock, given_back);
}
