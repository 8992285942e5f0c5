// A trainer and a rollout engine take turns on one GPU that has memory for only one of them.
#include <memsaver/memsaver.hpp>

#include <cstdlib>
#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

constexpr std::size_t parameters = 4 << 20;

/// Stand-ins for GPU kernels; a HostDriver's device memory is ordinary host memory.
void train(float* weights, float* moments) {
    for (std::size_t i = 0; i < parameters; ++i) {
        moments[i] = 0.9F * moments[i] + 1;
        weights[i] += moments[i];
    }
}
float roll_out(const float* weights, float* cache) {
    cache[0] = weights[0] + weights[parameters - 1];
    return cache[0];
}

} // namespace

int main() {
    const Tags trainer{"trainer.weights", "trainer.optimizer"};
    const Tags rollout{"rollout.weights", "rollout.cache"};
    MemorySaver<> saver{HostDriver{64_MiB}}; // 32 MiB each, plus a margin for the smallest pages

    // The rollout engine is allocated first and paused at once, which leaves room for the trainer.
    const Buffer<float> served{saver.arena("rollout.weights", HostBackup{}), parameters};
    const Buffer<float> cache{saver.arena("rollout.cache", Discard{}), parameters};
    for (std::size_t i = 0; i < parameters; ++i) served.data()[i] = 0;
    saver.pause(rollout);
    const Buffer<float> weights{saver.arena("trainer.weights", HostBackup{}), parameters};
    const Buffer<float> moments{saver.arena("trainer.optimizer", HostBackup{}), parameters};
    for (std::size_t i = 0; i < parameters; ++i) weights.data()[i] = moments.data()[i] = 0;

    float expected = 0;
    float moment = 0;
    for (int round = 0; round < 3; ++round) {
        train(weights.data(), moments.data());
        moment = 0.9F * moment + 1;
        expected += moment;

        // Writes the new weights into the backup of the paused rollout engine, so both never need device memory at
        // once.
        const std::vector<float> update(weights.data(), weights.data() + parameters); // on a GPU: copied to the host
        saver.write_backup(served.data(), update.data(), parameters * sizeof(float));

        std::cout << "to the rollout: " << saver.exchange(trainer, rollout) << '\n'; // pages are handed over
        if (roll_out(served.data(), cache.data()) != 2 * expected) std::abort();
        std::cout << "to the trainer: " << saver.exchange(rollout, trainer) << '\n';
    }
    std::cout << saver.usage();
}
