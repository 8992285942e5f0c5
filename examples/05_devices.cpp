// One tag on several devices: the devices are paused and resumed together, in parallel. Uses two GPUs if there are two,
// otherwise two equivalent devices in host memory.
#include <memsaver/memsaver.hpp>

#include <iostream>

using namespace memsaver;

namespace {

template <Driver D>
void run(const D& first, const D& second) {
    MemorySaver saver{first};
    const Buffer<float> here{saver.arena("weights"), 4 << 20};
    const Buffer<float> there{saver.arena("weights", Discard{}, second), 8 << 20}; // one policy per tag

    const Report paused = saver.pause("weights");
    std::cout << paused << '\n';
    for (const TagReport& row : paused.tags) {
        std::cout << "  device " << row.device << " released " << format_bytes(row.released_bytes) << '\n';
    }
    std::cout << saver.resume("weights") << '\n' << saver.usage();
}

} // namespace

int main() {
    if (CudaDriver::available(0) && CudaDriver::available(1)) {
        run(CudaDriver{0}, CudaDriver{1}); // use CudaDriver{1, {.peers = {0}}} if device 0 also reads the pages
    } else {
        run(HostDriver{256_MiB}, HostDriver{256_MiB, {.device = 1}});
    }
}
