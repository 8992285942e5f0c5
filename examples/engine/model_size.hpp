// The dimensions of a model and the sizes derived from them. Independent of memory and devices.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace engine {

/// Returns `bytes` rounded up to a multiple of `unit`.
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
    return (bytes + unit - 1) / unit * unit;
}

/// A decoder-only transformer: grouped-query attention with rotary positions, RMS norm, SwiGLU, no biases; bf16.
struct ModelSize {
    int layers = 4;
    int hidden = 1024;
    int heads = 8;
    int kv_heads = 2;
    int head_dim = 128; ///< 64 or 128
    int ffn = 4096;
    int vocab = 32000;
    int max_positions = 4096;

    [[nodiscard]] int attended() const noexcept { return heads * head_dim; }
    /// Returns the width of a row of queries, keys and values.
    [[nodiscard]] int qkv() const noexcept { return (heads + 2 * kv_heads) * head_dim; }

    [[nodiscard]] std::size_t layer_parameters() const noexcept {
        const auto h = static_cast<std::size_t>(hidden);
        return h * (static_cast<std::size_t>(qkv()) + static_cast<std::size_t>(attended()) +
                    3 * static_cast<std::size_t>(ffn) + 2);
    }
    [[nodiscard]] std::size_t parameters() const noexcept {
        const auto h = static_cast<std::size_t>(hidden);
        return static_cast<std::size_t>(layers) * layer_parameters() + 2 * static_cast<std::size_t>(vocab) * h + h;
    }
    [[nodiscard]] std::size_t weight_bytes() const noexcept { return 2 * parameters(); }
    /// Returns the bytes of the keys and values of one token in one layer.
    [[nodiscard]] std::size_t kv_bytes() const noexcept {
        return 2 * 2 * static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(head_dim);
    }

    /// Throws std::invalid_argument, naming the limit, for sizes that the kernels do not support.
    void validate() const {
        const auto want = [](bool good, const std::string& what) {
            if (!good) throw std::invalid_argument{"model: " + what};
        };
        want(layers > 0 && hidden > 0 && heads > 0 && kv_heads > 0 && ffn > 0 && vocab > 0 && max_positions > 0,
             "every size must be at least 1");
        want(head_dim == 64 || head_dim == 128, "head_dim must be 64 or 128");
        want(heads % kv_heads == 0, "heads must be a multiple of kv-heads");
        want(hidden % 8 == 0 && ffn % 8 == 0 && vocab % 8 == 0, "hidden, ffn and vocab must be multiples of 8");
    }
};

} // namespace engine
