// One step of the model: from tokens to the next tokens, for a few rows. Enqueues work on a stream and allocates
// nothing, so that it can be captured.
#pragma once

#include "blas.hpp"
#include "kernels.hpp"
#include "kv_cache.hpp"
#include "weights.hpp"

#include <memsaver/memsaver.hpp>

#include <cstddef>
#include <cstdint>

namespace engine {

/// The memory that a step needs between its kernels, as parts of one workspace.
struct StepScratch {
    float* residual = nullptr;
    bf16* normed = nullptr;
    bf16* qkv = nullptr;
    bf16* attended = nullptr;
    bf16* projected = nullptr;
    bf16* gate_up = nullptr;
    bf16* activated = nullptr;
    std::size_t bytes = 0;

    /// If `workspace` is null, only `bytes` is meaningful.
    static StepScratch of(void* workspace, const ModelSize& size, int rows) {
        StepScratch scratch;
        const auto cut = [&]<class T>(T*& part, int width) {
            const std::size_t size_bytes = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width) * sizeof(T);
            if (workspace != nullptr)
                part = reinterpret_cast<T*>(static_cast<unsigned char*>(workspace) + scratch.bytes);
            scratch.bytes += round_up(size_bytes, 256);
        };
        cut(scratch.residual, size.hidden);
        cut(scratch.normed, size.hidden);
        cut(scratch.qkv, size.qkv());
        cut(scratch.attended, size.attended());
        cut(scratch.projected, size.hidden);
        cut(scratch.gate_up, 2 * size.ffn);
        cut(scratch.activated, size.ffn);
        return scratch;
    }
};

/// Inputs and outputs of a step, on the device.
struct StepMemory {
    StepInputs inputs{};
    const float2* rotary = nullptr;
    float* logits = nullptr;      ///< [rows][vocab]
    std::int32_t* next = nullptr; ///< [rows]
};

class Model {
public:
    Model(const ModelSize& size, const Weights& weights, const KvCache& cache, memsaver::CublasWorkspace& blas)
        : size_{size}, weights_{weights}, cache_{cache}, blas_{blas} {}

    /// Precondition: `blas` uses `stream`.
    void step(const StepMemory& memory, const StepScratch& s, int rows, cudaStream_t stream) const {
        const AttentionShape shape{size_.heads, size_.kv_heads, size_.head_dim, cache_.page_tokens()};
        weights_.before(0, stream);
        embed(memory.inputs, weights_.embedding().data(), s.residual, rows, size_.hidden, stream);
        const bf16* delta = nullptr;
        for (std::size_t i = 0; i < weights_.layers().size(); ++i) {
            const LayerWeights& layer = weights_.layers()[i];
            weights_.before(i + 1, stream);
            add_and_norm(s.residual, delta, layer.attention_gain.data(), s.normed, rows, size_.hidden, stream);
            multiply(blas_, s.normed, layer.qkv.data(), s.qkv, rows, size_.hidden, size_.qkv());
            rotate_and_store(memory.inputs, shape, memory.rotary, s.qkv, cache_.layer(i), rows, stream);
            attention(memory.inputs, shape, s.qkv, cache_.layer(i), s.attended, rows, stream);
            multiply(blas_, s.attended, layer.attention_out.data(), s.projected, rows, size_.attended(), size_.hidden);
            add_and_norm(s.residual, s.projected, layer.ffn_gain.data(), s.normed, rows, size_.hidden, stream);
            multiply(blas_, s.normed, layer.gate_up.data(), s.gate_up, rows, size_.hidden, 2 * size_.ffn);
            swiglu(s.gate_up, s.activated, rows, size_.ffn, stream);
            multiply(blas_, s.activated, layer.down.data(), s.projected, rows, size_.ffn, size_.hidden);
            delta = s.projected;
        }
        weights_.before(weights_.layers().size() + 1, stream);
        add_and_norm(s.residual, delta, weights_.last_gain().data(), s.normed, rows, size_.hidden, stream);
        multiply(blas_, s.normed, weights_.head().data(), memory.logits, rows, size_.hidden, size_.vocab);
        argmax(memory.logits, memory.next, rows, size_.vocab, stream);
    }

    [[nodiscard]] const ModelSize& size() const noexcept { return size_; }

private:
    ModelSize size_;
    const Weights& weights_;
    const KvCache& cache_;
    memsaver::CublasWorkspace& blas_;
};

} // namespace engine
