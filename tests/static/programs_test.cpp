// The design's programs compile with each driver, with g++, clang++ and nvcc. tests/saver/programs_test.cpp runs them
// on host memory and on GPUs.
#include "support/programs.hpp"

using namespace test;

namespace {

template <class Driver, class Device>
void all_programs(Device device, StreamRef stream) {
    program_1_pause_and_resume(device);
    program_2_policies(device);
    program_3_raw_allocation(device, stream);
    program_4_many_tags(device, std::cout);
    program_5_order(device, stream);
    program_6_one_arena<Driver>(device);
    program_7_cuda_graphs(device, stream);
    program_8_workspaces(device);
    program_9_what_other_allocators_keep(device);
    program_10_several_devices(device);
    program_11_switched_off(device);
    program_13_held_by_a_class(device);
    program_14_stream_ordered(device, stream);
    program_15_the_life_of_a_tag(device);
    program_16_saving_ahead(device);
    program_17_streamed_resume(device, stream);
    program_21_elastic_memory(device);
}

[[maybe_unused]] void on_a_gpu(CUstream_st* stream) {
    MemorySaver saver{CudaDriver{0}}; // as in the design
    Arena second = saver.arena("weights", HostBackup{}, CudaDriver{1, {.peers = {0}}});
    all_programs<CudaDriver>([](int number) { return CudaDriver{number}; }, stream);
}

[[maybe_unused]] void on_host_memory(HostStream* stream) {
    MemorySaver saver{HostDriver{8_GiB}};
    all_programs<HostDriver>([](int number) { return HostDriver{8_GiB, {.device = number}}; }, stream);
}

[[maybe_unused]] void on_either() {
    program_12_the_machine_at_hand([](auto& saver) { saver.pause(); });
}

} // namespace
