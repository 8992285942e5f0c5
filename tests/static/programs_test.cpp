// The design's programs compile with each driver, with g++, clang++ and nvcc. tests/saver/programs_test.cpp runs them
// on host memory and on GPUs.
#include "support/programs.hpp"

using namespace test;

namespace {

template <class Driver, class Device>
void compiled(Device device, StreamRef stream) {
    all_programs<Driver>(device, stream, std::cout, "model.safetensors");
    program_19_compressed(device);
    program_19_a_neighbours_memory(device);
}

[[maybe_unused]] void on_a_gpu(CUstream_st* stream) {
    MemorySaver saver{CudaDriver{0}}; // as in the design
    Arena second = saver.arena("weights", HostBackup{}, CudaDriver{1, {.peers = {0}}});
    compiled<CudaDriver>([](int number) { return CudaDriver{number}; }, stream);
}

[[maybe_unused]] void on_host_memory(HostStream* stream) {
    MemorySaver saver{HostDriver{8_GiB}};
    compiled<HostDriver>([](int number) { return HostDriver{8_GiB, {.device = number}}; }, stream);
}

[[maybe_unused]] void on_either() {
    program_12_the_machine_at_hand([](auto& saver) { saver.pause(); });
}

} // namespace
