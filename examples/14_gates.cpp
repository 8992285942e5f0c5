// A decoder that runs while its weights are restored: one captured graph, launched immediately, in which each layer
// waits at a gate.
#include <memsaver/memsaver.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

using namespace memsaver;

constexpr std::size_t layers = 8;
constexpr std::size_t each = 4_MiB;

int main() {
    const HostDriver driver{1_GiB};
    MemorySaver<> saver{driver};
    const Buffer<char> weights{saver.arena("weights", FileBackup{.directory = "/tmp"}), layers * each};
    for (std::size_t i = 0; i < layers; ++i) std::memset(weights.data() + i * each, static_cast<int>(i + 1), each);

    StreamRef stream;
    if (!driver.open_stream(stream).ok()) return 1;
    std::vector<Gate> gates;
    ResumeAsyncOptions in_order;
    for (std::size_t i = 0; i < layers; ++i) {
        gates.push_back(saver.gate(weights.data() + i * each, each));
        in_order.first.push_back({weights.data() + i * each, each});
    }

    std::vector<int> seen(layers);
    const Graph step = capture(saver, "graph", stream, [&] {
        for (std::size_t i = 0; i < layers; ++i) {
            gates[i].before(stream); // in every replay, waits for this layer only
            const char* const layer = weights.data() + i * each;
            const Status enqueued = driver.enqueue(stream, reinterpret_cast<Address>(layer), each, // on a GPU: kernels
                                                   [&seen, layer, i] { seen[i] = layer[each - 1]; });
            if (!enqueued.ok()) std::abort();
        }
    });

    for (int round = 0; round < 3; ++round) {
        saver.pause("weights");
        seen.assign(layers, 0);
        const auto start = std::chrono::steady_clock::now();
        const Arrival coming = saver.resume_async("weights", in_order);
        step.launch(stream); // the same graph: no new capture
        if (!driver.drain().ok()) return 1;
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        coming.wait();
        for (std::size_t i = 0; i < layers; ++i) {
            if (seen[i] != static_cast<int>(i + 1)) std::abort();
        }
        std::cout << coming.report() << ", the graph completed after " << took.count() << " ms\n";
    }
    return driver.close_stream(stream).ok() ? 0 : 1;
}
