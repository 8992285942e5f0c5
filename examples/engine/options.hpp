// What an engine is made of. Does not use CUDA.
#pragma once

#include "model_size.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

struct Options {
    ModelSize model{};
    double cache_gib = 1;
    int page_tokens = 16;
    std::vector<int> batches{1, 2, 4, 8, 16, 32, 64, 128}; ///< one captured graph each
    int prompt_tokens = 32;
    int new_tokens = 16;
    std::uint64_t seed = 1;
    int device = 0;

    bool memsaver = true;    ///< off: plain memory, nothing is paused, the same tokens
    bool pageable = false;   ///< back up the weights to pageable instead of pinned memory
    bool compressed = false; ///< compress the backup with nvCOMP
    unsigned backup_threads = 8;
    bool stream_weights = false; ///< restore weights layer by layer while the engine computes

    [[nodiscard]] int largest_batch() const noexcept { return batches.back(); }
    [[nodiscard]] std::size_t cache_bytes() const noexcept {
        return static_cast<std::size_t>(cache_gib * 1024.0 * 1024.0 * 1024.0);
    }
};

} // namespace engine
