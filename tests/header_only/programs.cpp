// The design's programs with the headers alone, and with two drivers: driver-independent code must exist once
// (core_once.py checks this). They run on host memory, or on a GPU if an argument is given.
#include "support/programs.hpp"

#include <sstream>

using namespace test;

namespace {

template <class Driver>
void run_all(const Driver& first, const Driver& second) {
    StreamRef stream;
    check(first.open_stream(stream), "open a stream");
    std::ostringstream out;
    const SomeFile file;
    all_programs<Driver>([&](int number) { return number == 0 ? first : second; }, stream, out, file.path());
    check(first.close_stream(stream), "close a stream");
}

} // namespace

int main(int arguments, char**) {
    if (arguments > 1) run_all(CudaDriver{0}, CudaDriver{0});
    run_all(HostDriver{8_GiB}, HostDriver{8_GiB, {.device = 1}});
}
