// The host's NUMA node next to a CudaDriver's device: with the stub libcuda.so.1, like cuda_driver_test.cpp.
#include "stub_libcuda.hpp"
#include "support/machines.hpp"

namespace driver_cuda_numa_test {
using namespace test;
using namespace cuda_names;

TEST_CASE("a driver that does not know its NUMA node: the node is unknown") {
    CHECK(AnyDriver{HostDriver{64_MiB}}.numa_node() == -1);
}

TEST_CASE("CudaDriver: the NUMA node is what the device says, and -1 where it does not") {
    void* const library = ::dlopen(MEMSAVER_STUB_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    void* const symbol = ::dlsym(library, "memsaver_stub_state");
    REQUIRE(symbol != nullptr);
    StubState& state = *reinterpret_cast<StubState* (*)()>(symbol)();
    state.reset();
    {
        const CudaDriver driver{1, {}, MEMSAVER_STUB_LIBCUDA};
        for (const int node : {0, 3, -1}) {
            state.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = node;
            CHECK(driver.numa_node() == node);
            CHECK(AnyDriver{driver}.numa_node() == node); // determines where a backup's threads run
        }
        state.fails["cuDeviceGetAttribute"] = CUDA_ERROR_INVALID_VALUE; // a driver older than the attribute
        CHECK(driver.numa_node() == -1);
    }
    state.reset();
}
} // namespace driver_cuda_numa_test
