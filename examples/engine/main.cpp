// An engine generates, gives its memory up, takes it back, and generates the same tokens with the graphs it had
// captured. bench/engine measures it.
#include "engine.hpp"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

/// The memory in use on the whole device.
std::string used() {
    std::size_t free = 0;
    std::size_t total = 0;
    engine::check_cuda(cudaMemGetInfo(&free, &total), "query the device's memory");
    return std::to_string((total - free) >> 20) + " MiB in use";
}

int run(const engine::Options& options) {
    if (const auto found = memsaver::CudaDriver::available(options.device); !found) {
        std::cout << "skipped: " << found.reason << '\n';
        return 77;
    }
    engine::Engine engine{options};
    const std::vector<engine::Tokens> prompts = make_prompts(options, options.largest_batch());
    const std::vector<engine::Tokens> before = engine.generate(prompts, options.new_tokens);
    std::cout << "generated " << prompts.size() << " texts: " << used() << '\n';

    const memsaver::Report paused = engine.saver().pause(); // a trainer, or another engine, has the device now
    std::cout << paused << ": " << used() << '\n';

    const memsaver::Report resumed = engine.saver().resume();
    std::cout << resumed << ": " << used() << '\n';
    const bool same = engine.generate(prompts, options.new_tokens, 2) == before; // the cache's pages in another order
    std::cout << (same ? "the same tokens again\n" : "OTHER TOKENS\n");

    engine.saver().pause(); // as in reinforcement learning: the weights alone come back and are changed
    engine.saver().resume("weights");
    engine.weights().update(1, engine.stream());
    engine.saver().invalidate("weights"); // so that the next pause saves them again
    engine.saver().resume();
    const bool changed = engine.generate(prompts, options.new_tokens) != before;
    std::cout << (changed ? "other tokens after an update\n" : "THE UPDATE IS LOST\n");
    return same && changed ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main() {
    try {
        return run({});
    } catch (const std::exception& error) {
        std::cerr << "engine: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}
