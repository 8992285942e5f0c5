// A model's weights, in the tag "weights", whose bytes are saved to the host. Random, from a seed.
#pragma once

#include "cuda_check.hpp"
#include "kernels.hpp"
#include "model_size.hpp"

#include <memsaver/memsaver.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace engine {

using Saver = memsaver::MemorySaver<memsaver::CudaDriver>;
using memsaver::Buffer;

/// Matrices are [out][in], as they are multiplied.
struct LayerWeights {
    Buffer<bf16> attention_gain;
    Buffer<bf16> qkv;
    Buffer<bf16> attention_out;
    Buffer<bf16> ffn_gain;
    Buffer<bf16> gate_up;
    Buffer<bf16> down;
};

class Weights {
public:
    /// Allocates the memory and fills it in the order of `stream`.
    Weights(const memsaver::Arena& arena, const ModelSize& size, std::uint64_t seed, cudaStream_t stream)
        : arena_{arena}, sum_{arena, 1}, sum_on_host_{make_pinned<std::uint64_t>(1)}, seed_{seed} {
        const int h = size.hidden;
        embedding_ = matrix(size.vocab, h, 1.0f, stream);
        for (int i = 0; i < size.layers; ++i) {
            LayerWeights layer;
            layer.attention_gain = gain(h, stream);
            layer.qkv = matrix(size.qkv(), h, fan_in(h), stream);
            layer.attention_out = matrix(h, size.attended(), fan_in(size.attended()), stream);
            layer.ffn_gain = gain(h, stream);
            layer.gate_up = matrix(2 * size.ffn, h, fan_in(h), stream);
            layer.down = matrix(h, size.ffn, fan_in(size.ffn), stream);
            layers_.push_back(std::move(layer));
        }
        last_gain_ = gain(h, stream);
        head_ = matrix(size.vocab, h, fan_in(h), stream);
    }

    [[nodiscard]] const Buffer<bf16>& embedding() const noexcept { return embedding_; }
    [[nodiscard]] const std::vector<LayerWeights>& layers() const noexcept { return layers_; }
    [[nodiscard]] const Buffer<bf16>& last_gain() const noexcept { return last_gain_; }
    [[nodiscard]] const Buffer<bf16>& head() const noexcept { return head_; }

    /// Returns the weights' bytes in the order in which a step reads them: before its layers, in each of them, and
    /// after them.
    [[nodiscard]] std::vector<std::vector<memsaver::BytesAt>> parts() const {
        const auto bytes_of = [](std::initializer_list<const Buffer<bf16>*> tensors) {
            std::vector<memsaver::BytesAt> ranges;
            for (const Buffer<bf16>* tensor : tensors) ranges.push_back({tensor->data(), tensor->size_bytes()});
            return ranges;
        };
        std::vector<std::vector<memsaver::BytesAt>> parts{bytes_of({&embedding_})};
        for (const LayerWeights& layer : layers_)
            parts.push_back(bytes_of({&layer.attention_gain, &layer.qkv, &layer.attention_out, &layer.ffn_gain,
                                      &layer.gate_up, &layer.down}));
        parts.push_back(bytes_of({&last_gain_, &head_}));
        return parts;
    }

    /// From now on, steps wait for the weights that they read, part by part, while a resume is restoring them. This
    /// includes graphs captured from now on.
    void make_gates(Saver& saver) {
        gates_.clear();
        for (const auto& part : parts()) {
            gates_.emplace_back();
            for (const auto& range : part) gates_.back().push_back(saver.gate(range.pointer, range.bytes));
        }
    }
    /// Makes the stream, or the graph that it captures, wait until a part has arrived.
    void before(std::size_t part, cudaStream_t stream) const {
        if (gates_.empty()) return;
        for (const memsaver::Gate& gate : gates_[part]) gate.before(stream);
    }

    /// Changes every matrix in place, as a step of an optimizer would.
    void update(std::uint64_t step, cudaStream_t stream) {
        each([&](Buffer<bf16>& tensor, std::uint64_t number) {
            nudge(tensor.data(), tensor.size(), 0.02f, (step << 32) ^ number, stream);
        });
    }

    /// Returns a checksum of every bit. Waits for `stream`.
    [[nodiscard]] std::uint64_t checksum(cudaStream_t stream) {
        check_cuda(cudaMemsetAsync(sum_.data(), 0, sizeof(std::uint64_t), stream), "clear the checksum");
        each([&](Buffer<bf16>& tensor, std::uint64_t number) {
            add_checksum(tensor.data(), tensor.size(), number << 40, sum_.data(), stream);
        });
        check_cuda(
            cudaMemcpyAsync(sum_on_host_.get(), sum_.data(), sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream),
            "read the checksum");
        check_cuda(cudaStreamSynchronize(stream), "wait for the checksum");
        return sum_on_host_[0];
    }

private:
    static float fan_in(int width) noexcept { return 1.0f / std::sqrt(static_cast<float>(width)); }

    Buffer<bf16> matrix(int rows, int columns, float deviation, cudaStream_t stream) {
        return random(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), 0.0f, deviation, stream);
    }
    Buffer<bf16> gain(int width, cudaStream_t stream) {
        return random(static_cast<std::size_t>(width), 1.0f, 0.1f, stream);
    }
    Buffer<bf16> random(std::size_t count, float mean, float deviation, cudaStream_t stream) {
        Buffer<bf16> tensor{arena_, count};
        fill_random(tensor.data(), count, mean, deviation, seed_ * 1'000'003 + ++tensors_, stream);
        return tensor;
    }

    template <class Act>
    void each(Act&& act) {
        std::uint64_t number = 0;
        act(embedding_, ++number);
        for (LayerWeights& layer : layers_) {
            for (Buffer<bf16>* tensor : {&layer.attention_gain, &layer.qkv, &layer.attention_out, &layer.ffn_gain,
                                         &layer.gate_up, &layer.down})
                act(*tensor, ++number);
        }
        act(last_gain_, ++number);
        act(head_, ++number);
    }

    memsaver::Arena arena_;
    Buffer<std::uint64_t> sum_; // in the weights' tag: resident whenever they are
    Pinned<std::uint64_t> sum_on_host_;
    std::uint64_t seed_;
    std::uint64_t tensors_ = 0;
    Buffer<bf16> embedding_;
    std::vector<LayerWeights> layers_;
    Buffer<bf16> last_gain_;
    Buffer<bf16> head_;
    std::vector<std::vector<memsaver::Gate>> gates_; // for each part
};

} // namespace engine
