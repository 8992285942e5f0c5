// Launchers of the kernels in kernels.cu: everything on the device except matrix products. Each is asynchronous on its
// stream, allocates nothing, and throws std::runtime_error if the launch fails. Matrices are row-major.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace engine {

using bf16 = __nv_bfloat16;

/// The inputs of a step, on the device: one row for each processed token.
struct StepInputs {
    const std::int32_t* tokens = nullptr;
    const std::int32_t* positions = nullptr;
    const std::int32_t* slots = nullptr; ///< each row's sequence: a row of `pages`
    const std::int32_t* pages = nullptr; ///< PageTable::entries
    int pages_per_slot = 0;
};

/// The layout of queries, keys and values: a row of `qkv` contains query heads, then key heads, then value heads; a
/// page of the cache contains [key heads][tokens][head_dim] of keys, then the same of values.
struct AttentionShape {
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0; ///< 64 or 128
    int page_tokens = 0;
};

// --- Filling and changing weights ---

/// Fills with `mean` plus `deviation` times a uniform variable of variance 1, rounded to bf16; a function of `seed` and
/// the index.
void fill_random(bf16* out, std::size_t count, float mean, float deviation, std::uint64_t seed, cudaStream_t stream);
/// Multiplies each value by (1 + `strength` * u), u uniform with variance 1: an update in place.
void nudge(bf16* data, std::size_t count, float strength, std::uint64_t seed, cudaStream_t stream);
/// Adds to `*sum` a number that depends on every bit and its position. `count` is a multiple of 4.
void add_checksum(const bf16* data, std::size_t count, std::uint64_t seed, std::uint64_t* sum, cudaStream_t stream);
/// Computes cosine and sine of every position and frequency: [positions][head_dim / 2].
void make_rotary(float2* table, int positions, int head_dim, cudaStream_t stream);

// --- A step ---

/// Writes the embeddings of the rows' tokens to `residual` [rows][hidden].
void embed(const StepInputs& inputs, const bf16* table, float* residual, int rows, int hidden, cudaStream_t stream);
/// `residual` += `delta` (if not null), then `out` = its RMS norm times `gain`.
void add_and_norm(float* residual, const bf16* delta, const bf16* gain, bf16* out, int rows, int hidden,
                  cudaStream_t stream);
/// Rotates queries and keys, and writes keys and values to the rows' pages.
void rotate_and_store(const StepInputs& inputs, const AttentionShape& shape, const float2* rotary, bf16* qkv,
                      bf16* cache, int rows, cudaStream_t stream);
/// Each row attends to its sequence up to its own position.
void attention(const StepInputs& inputs, const AttentionShape& shape, const bf16* qkv, const bf16* cache, bf16* out,
               int rows, cudaStream_t stream);
/// `gate_up` [rows][2 * ffn]: `out` = silu(gate) * up.
void swiglu(const bf16* gate_up, bf16* out, int rows, int ffn, cudaStream_t stream);
/// Returns the index of the largest value in each row, the first if there are several.
void argmax(const float* logits, std::int32_t* next, int rows, int vocab, cudaStream_t stream);

// --- Measuring ---

/// Keeps the whole device computing for a while, so that its clocks are up. Touches no memory.
void spin(std::uint64_t nanoseconds, int multiprocessors, cudaStream_t stream);

} // namespace engine
