// main of the tests that need GPUs. Queries the driver directly for the number of GPUs: if it used memsaver, a memsaver
// that finds no GPU would skip the tests that detect this.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <dlfcn.h>

bool gpu_case_skipped = false; // set by a case that cannot run on this machine

namespace {

/// Returns the number of devices, or 0 and the reason.
int count_gpus(const char*& why) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) {
        why = "no NVIDIA driver (libcuda.so.1)";
        return 0;
    }
    auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto* count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int devices = 0;
    if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) {
        why = "the NVIDIA driver does not start";
        return 0;
    }
    why = "too few GPUs";
    return devices;
}

} // namespace

int main(int argc, char** argv) {
    const char* why = "";
    if (const int gpus = count_gpus(why); gpus < MEMSAVER_TEST_GPUS) {
        std::printf("skipped: %s, %d wanted, %d found\n", why, MEMSAVER_TEST_GPUS, gpus);
        return 77; // ctest's exit code for skipped tests
    }
    const int failed = doctest::Context{argc, argv}.run();
    return failed == 0 && gpu_case_skipped ? 77 : failed;
}
