// The same transformer on the host, one token at a time, in plain loops: the reference for the kernels. Rounds to bf16
// wherever the device stores bf16.
#pragma once

#include "weights.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

class Reference {
public:
    using Values = std::vector<float>;

    Reference(const ModelSize& size, const Weights& weights)
        : size_{size}, embedding_{on_host(weights.embedding())},
          last_gain_{on_host(weights.last_gain())}, head_{on_host(weights.head())} {
        for (const LayerWeights& layer : weights.layers()) {
            layers_.push_back({on_host(layer.attention_gain), on_host(layer.qkv), on_host(layer.attention_out),
                               on_host(layer.ffn_gain), on_host(layer.gate_up), on_host(layer.down)});
        }
    }

    /// The state of one sequence.
    struct Sequence {
        std::vector<Values> keys, values; ///< for each layer, token after token
    };

    /// Returns the logits after `token`, the next token of the sequence.
    [[nodiscard]] Values step(Sequence& sequence, std::int32_t token) const {
        const auto hidden = static_cast<std::size_t>(size_.hidden);
        sequence.keys.resize(layers_.size());
        sequence.values.resize(layers_.size());
        const auto row = embedding_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token) * hidden);
        Values residual(row, row + static_cast<std::ptrdiff_t>(hidden));
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            const Layer& layer = layers_[i];
            Values qkv = times(norm(residual, layer.attention_gain), layer.qkv);
            add(residual, times(attend(sequence, i, std::move(qkv)), layer.attention_out));
            const Values both = times(norm(residual, layer.ffn_gain), layer.gate_up);
            Values active(static_cast<std::size_t>(size_.ffn));
            for (std::size_t j = 0; j < active.size(); ++j)
                active[j] = rounded(both[j] / (1.0f + std::exp(-both[j])) * both[active.size() + j]);
            add(residual, times(active, layer.down));
        }
        return times(norm(residual, last_gain_), head_, false);
    }

    /// Copies the values of a device tensor.
    static Values on_host(const Buffer<bf16>& tensor) {
        std::vector<std::uint16_t> bits(tensor.size());
        check_cuda(cudaMemcpy(bits.data(), tensor.data(), tensor.size_bytes(), cudaMemcpyDeviceToHost), "read weights");
        Values values;
        for (const std::uint16_t b : bits) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16));
        return values;
    }

private:
    struct Layer {
        Values attention_gain, qkv, attention_out, ffn_gain, gate_up, down;
    };

    /// Rounds to the nearest bf16, ties to even.
    static float rounded(float value) noexcept {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
    }
    static void add(Values& to, const Values& what) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
    }
    static Values norm(const Values& in, const Values& gain) {
        double squares = 0;
        for (const float value : in) squares += static_cast<double>(value) * static_cast<double>(value);
        const auto scale = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(in.size()) + 1e-5));
        Values out(in.size());
        for (std::size_t i = 0; i < in.size(); ++i) out[i] = rounded(in[i] * scale * gain[i]);
        return out;
    }
    static Values times(const Values& in, const Values& matrix, bool round = true) {
        Values out(matrix.size() / in.size());
        for (std::size_t o = 0; o < out.size(); ++o) {
            double sum = 0;
            for (std::size_t i = 0; i < in.size(); ++i)
                sum += static_cast<double>(in[i]) * static_cast<double>(matrix[o * in.size() + i]);
            out[o] = round ? rounded(static_cast<float>(sum)) : static_cast<float>(sum);
        }
        return out;
    }

    [[nodiscard]] Values attend(Sequence& sequence, std::size_t layer, Values qkv) const {
        const auto dim = static_cast<std::size_t>(size_.head_dim);
        const auto heads = static_cast<std::size_t>(size_.heads);
        const auto kv_heads = static_cast<std::size_t>(size_.kv_heads);
        Values& keys = sequence.keys[layer];
        Values& values = sequence.values[layer];
        const std::size_t position = keys.size() / (kv_heads * dim);
        for (std::size_t head = 0; head < heads + kv_heads; ++head) {
            for (std::size_t i = 0; i < dim / 2; ++i) {
                const double exponent = static_cast<double>(i) / static_cast<double>(dim / 2);
                const double angle = static_cast<double>(position) * std::pow(10000.0, -exponent);
                const auto c = static_cast<float>(std::cos(angle));
                const auto s = static_cast<float>(std::sin(angle));
                float& low = qkv[head * dim + i];
                float& high = qkv[head * dim + i + dim / 2];
                const float a = low;
                const float b = high;
                low = rounded(a * c - b * s);
                high = rounded(b * c + a * s);
            }
        }
        const auto kv_start = qkv.begin() + static_cast<std::ptrdiff_t>(heads * dim);
        const auto v_start = kv_start + static_cast<std::ptrdiff_t>(kv_heads * dim);
        keys.insert(keys.end(), kv_start, v_start);
        values.insert(values.end(), v_start, qkv.end());

        Values out(heads * dim);
        for (std::size_t head = 0; head < heads; ++head) {
            const std::size_t kv_head = head / (heads / kv_heads);
            const auto at = [&](std::size_t token) { return (token * kv_heads + kv_head) * dim; };
            std::vector<double> scores(position + 1);
            double highest = -INFINITY;
            for (std::size_t token = 0; token <= position; ++token) {
                double score = 0;
                for (std::size_t i = 0; i < dim; ++i)
                    score += static_cast<double>(qkv[head * dim + i]) * static_cast<double>(keys[at(token) + i]);
                scores[token] = score / std::sqrt(static_cast<double>(dim));
                highest = std::max(highest, scores[token]);
            }
            double total = 0;
            for (double& score : scores) total += score = std::exp(score - highest);
            for (std::size_t i = 0; i < dim; ++i) {
                double sum = 0;
                for (std::size_t token = 0; token <= position; ++token)
                    sum += scores[token] * static_cast<double>(values[at(token) + i]);
                out[head * dim + i] = rounded(static_cast<float>(sum / total));
            }
        }
        return out;
    }

    ModelSize size_;
    Values embedding_;
    std::vector<Layer> layers_;
    Values last_gain_;
    Values head_;
};

} // namespace engine
