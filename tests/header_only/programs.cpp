// The design's programs with the headers alone, and with two drivers: driver-independent code must exist once
// (core_once.py checks this). They run on host memory, or on a GPU if an argument is given.
#include "support/programs.hpp"

#include <sstream>

using namespace test;

namespace {

template <class Driver>
void all_programs(const Driver& first, const Driver& second) {
    const auto device = [&](int number) { return number == 0 ? first : second; };
    StreamRef stream;
    check(first.open_stream(stream), "open a stream");
    std::ostringstream out;
    program_1_pause_and_resume(device);
    program_2_policies(device);
    program_3_raw_allocation(device, stream);
    program_4_many_tags(device, out);
    program_5_order(device, stream);
    program_6_one_arena<Driver>(device);
    program_7_cuda_graphs(device, stream);
    program_8_workspaces(device);
    program_9_what_other_allocators_keep(device);
    program_10_several_devices(device);
    program_11_switched_off(device);
    check(first.close_stream(stream), "close a stream");
}

} // namespace

int main(int arguments, char**) {
    if (arguments > 1) all_programs(CudaDriver{0}, CudaDriver{0});
    all_programs(HostDriver{8_GiB}, HostDriver{8_GiB, {.device = 1}});
}
