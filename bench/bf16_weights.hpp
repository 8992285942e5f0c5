// Bytes similar to a model's weights, as input for compression. Independent of tags.
#pragma once

#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

namespace bench {

/// Returns 64 MiB of bf16, normally distributed with sigma 0.02, to be repeated; longer than a codec's window.
inline std::vector<unsigned char> bf16_weights() {
    using namespace memsaver::literals;
    std::mt19937 random{7};
    std::normal_distribution<float> normal{0.0F, 0.02F};
    std::vector<unsigned char> made(64_MiB);
    for (std::size_t at = 0; at < made.size(); at += 2) {
        const float value = normal(random);
        std::memcpy(made.data() + at, reinterpret_cast<const unsigned char*>(&value) + 2, 2);
    }
    return made;
}

} // namespace bench
