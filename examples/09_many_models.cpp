// A server with more models than fit into memory: each request uses its model, and idle models are paused to make room.
#include <memsaver/memsaver.hpp>

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using namespace memsaver;

int main() {
    MemorySaver<> saver{HostDriver{112_MiB}, {.evict_for_allocations = true}}; // also while models are loaded

    std::vector<Buffer<float>> weights; // eight models of 32 MiB; three fit
    for (int model = 0; model < 8; ++model) {
        const Arena arena = saver.arena("model." + std::to_string(model), HostBackup{.refresh = Refresh::once});
        const Use loading = saver.use(arena.tag()); // not evicted while loading; idle models are
        weights.emplace_back(arena, 8 << 20).data()[0] = static_cast<float>(model); // on a GPU: copy_to_device
    }

    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int request = 0; request < 10; ++request) {
                const int model = request * (thread + 1) % 8;
                const Use use = saver.use("model." + std::to_string(model)); // on a GPU: use.until(stream) at the end
                if (weights[static_cast<std::size_t>(model)].data()[0] != static_cast<float>(model)) std::abort();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();

    const ResidencyUsage done = saver.usage().residency();
    std::cout << saver.usage() << done.hits << " hits, " << done.misses << " misses, " << done.evictions
              << " evictions\n"
              << saver.reclaim(64_MiB) << '\n';
}
