// The kernels. Simple rather than fast: steps of a large model spend their time in cuBLAS, and the example is about
// memory.
#include "kernels.hpp"

#include <stdexcept>
#include <string>

namespace engine {
namespace {

constexpr int warp_size = 32;
constexpr unsigned full_warp = 0xffffffffu;
constexpr float epsilon = 1e-5f;

void launched(const char* what) {
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
        throw std::runtime_error{std::string{"launch "} + what + " failed: " + cudaGetErrorString(error)};
}

__device__ std::uint64_t mix(std::uint64_t x) { // splitmix64's finisher
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
/// Uniform with mean 0 and variance 1.
__device__ float uniform(std::uint64_t seed, std::size_t index) {
    const auto bits = static_cast<float>(mix(seed ^ mix(index)) >> 40); // 24 bits: exact
    return (bits * (2.0f / 16777216.0f) - 1.0f) * 1.7320508f;
}

__device__ float warp_sum(float value) {
    for (int step = warp_size / 2; step > 0; step /= 2) value += __shfl_xor_sync(full_warp, value, step);
    return value;
}
/// Returns the sum over a block of whole warps, on every thread.
__device__ float block_sum(float value) {
    __shared__ float parts[warp_size];
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    value = warp_sum(value);
    if (lane == 0) parts[warp] = value;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / warp_size;
    return warp_sum(lane < warps ? parts[lane] : 0.0f);
}

__device__ std::size_t first_index() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::size_t all_threads() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

__global__ void fill_random_kernel(bf16* out, std::size_t count, float mean, float deviation, std::uint64_t seed) {
    for (std::size_t i = first_index(); i < count; i += all_threads())
        out[i] = __float2bfloat16(mean + deviation * uniform(seed, i));
}

__global__ void nudge_kernel(bf16* data, std::size_t count, float strength, std::uint64_t seed) {
    for (std::size_t i = first_index(); i < count; i += all_threads())
        data[i] = __float2bfloat16(__bfloat162float(data[i]) * (1.0f + strength * uniform(seed, i)));
}

__global__ void checksum_kernel(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                                unsigned long long* sum) {
    std::uint64_t mine = 0;
    for (std::size_t i = first_index(); i < count; i += all_threads()) mine += mix(words[i] ^ mix(seed + i));
    for (int step = warp_size / 2; step > 0; step /= 2) mine += __shfl_xor_sync(full_warp, mine, step);
    if (threadIdx.x % warp_size == 0) atomicAdd(sum, static_cast<unsigned long long>(mine));
}

__global__ void rotary_kernel(float2* table, int positions, int half) {
    for (std::size_t i = first_index(); i < static_cast<std::size_t>(positions) * half; i += all_threads()) {
        const auto position = static_cast<float>(i / half);
        const auto frequency = static_cast<float>(i % half) / static_cast<float>(half);
        float2 turn;
        sincosf(position * powf(10000.0f, -frequency), &turn.y, &turn.x);
        table[i] = turn;
    }
}

__global__ void embed_kernel(StepInputs in, const bf16* table, float* residual, int hidden) {
    const std::size_t from = static_cast<std::size_t>(in.tokens[blockIdx.x]) * hidden;
    const std::size_t to = static_cast<std::size_t>(blockIdx.x) * hidden;
    for (int i = threadIdx.x; i < hidden; i += blockDim.x) residual[to + i] = __bfloat162float(table[from + i]);
}

__global__ void add_and_norm_kernel(float* residual, const bf16* delta, const bf16* gain, bf16* out, int hidden) {
    const std::size_t row = static_cast<std::size_t>(blockIdx.x) * hidden;
    float squares = 0;
    for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
        float value = residual[row + i];
        if (delta != nullptr) {
            value += __bfloat162float(delta[row + i]);
            residual[row + i] = value;
        }
        squares += value * value;
    }
    const float scale = rsqrtf(block_sum(squares) / static_cast<float>(hidden) + epsilon);
    for (int i = threadIdx.x; i < hidden; i += blockDim.x) // each thread reads what it wrote itself
        out[row + i] = __float2bfloat16(residual[row + i] * scale * __bfloat162float(gain[i]));
}

/// Returns the position of a head's token in a layer's cache. Values follow `page_values` elements after the keys.
__device__ std::size_t place_in_cache(const StepInputs& in, const AttentionShape& shape, int row, int token, int head) {
    const int page = in.pages[in.slots[row] * in.pages_per_slot + token / shape.page_tokens];
    const std::size_t heads_before = static_cast<std::size_t>(page) * 2 * shape.kv_heads + head;
    return (heads_before * shape.page_tokens + token % shape.page_tokens) * shape.head_dim;
}
__device__ std::size_t keys_of_page(const AttentionShape& shape) {
    return static_cast<std::size_t>(shape.kv_heads) * shape.page_tokens * shape.head_dim;
}

/// One block for each row and head (of queries, keys or values), one thread for each pair of elements.
__global__ void rotate_and_store_kernel(StepInputs in, AttentionShape shape, const float2* rotary, bf16* qkv,
                                        bf16* cache) {
    const int row = blockIdx.x, head = blockIdx.y, pair = threadIdx.x, half = shape.head_dim / 2;
    const int position = in.positions[row];
    bf16* const at = qkv + (static_cast<std::size_t>(row) * gridDim.y + head) * shape.head_dim;
    bf16 low = at[pair], high = at[pair + half];
    const bool is_value = head >= shape.heads + shape.kv_heads;
    if (!is_value) {
        const float2 turn = rotary[static_cast<std::size_t>(position) * half + pair];
        const float a = __bfloat162float(low), b = __bfloat162float(high);
        low = __float2bfloat16(a * turn.x - b * turn.y);
        high = __float2bfloat16(b * turn.x + a * turn.y);
    }
    if (head < shape.heads) {
        at[pair] = low;
        at[pair + half] = high;
        return;
    }
    const int kv_head = is_value ? head - shape.heads - shape.kv_heads : head - shape.heads;
    bf16* const place =
        cache + place_in_cache(in, shape, row, position, kv_head) + (is_value ? keys_of_page(shape) : 0);
    place[pair] = low;
    place[pair + half] = high;
}

/// A lane's part of a head, moved by one instruction.
template <int Count>
struct alignas(2 * Count) Pack {
    bf16 values[Count];
};

constexpr int attention_warps = 4;

/// One block for each row and query head. Each warp processes every fourth token, with a running maximum; then the
/// warps' sums are combined.
template <int HeadDim>
__global__ void attention_kernel(StepInputs in, AttentionShape shape, const bf16* qkv, const bf16* cache, bf16* out) {
    constexpr int per_lane = HeadDim / warp_size;
    using Part = Pack<per_lane>;
    const int row = blockIdx.x, head = blockIdx.y;
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const int kv_head = head / (shape.heads / shape.kv_heads);
    const int width = shape.heads + 2 * shape.kv_heads;
    const std::size_t values_after = keys_of_page(shape);

    const auto* const query_at = qkv + (static_cast<std::size_t>(row) * width + head) * HeadDim;
    const Part query_part = reinterpret_cast<const Part*>(query_at)[lane];
    float query[per_lane], sum[per_lane] = {};
    for (int i = 0; i < per_lane; ++i)
        query[i] = __bfloat162float(query_part.values[i]) * rsqrtf(static_cast<float>(HeadDim));

    float highest = -INFINITY, weight = 0;
    const int tokens = in.positions[row] + 1;
    for (int token = warp; token < tokens; token += attention_warps) {
        const bf16* const at = cache + place_in_cache(in, shape, row, token, kv_head);
        const Part key = reinterpret_cast<const Part*>(at)[lane];
        const Part value = reinterpret_cast<const Part*>(at + values_after)[lane];
        float score = 0;
        for (int i = 0; i < per_lane; ++i) score += query[i] * __bfloat162float(key.values[i]);
        score = warp_sum(score);
        const float now = fmaxf(highest, score);
        const float fade = expf(highest - now), share = expf(score - now);
        weight = weight * fade + share;
        for (int i = 0; i < per_lane; ++i) sum[i] = sum[i] * fade + share * __bfloat162float(value.values[i]);
        highest = now;
    }

    __shared__ float highest_of[attention_warps], weight_of[attention_warps], sum_of[attention_warps][HeadDim];
    if (lane == 0) {
        highest_of[warp] = highest;
        weight_of[warp] = weight;
    }
    for (int i = 0; i < per_lane; ++i) sum_of[warp][lane * per_lane + i] = sum[i];
    __syncthreads();
    float top = -INFINITY, total = 0;
    for (int other = 0; other < attention_warps; ++other) top = fmaxf(top, highest_of[other]);
    for (int other = 0; other < attention_warps; ++other) total += weight_of[other] * expf(highest_of[other] - top);
    bf16* const result = out + (static_cast<std::size_t>(row) * shape.heads + head) * HeadDim;
    for (int i = threadIdx.x; i < HeadDim; i += blockDim.x) {
        float value = 0;
        for (int other = 0; other < attention_warps; ++other) value += sum_of[other][i] * expf(highest_of[other] - top);
        result[i] = __float2bfloat16(value / total);
    }
}

__global__ void swiglu_kernel(const bf16* gate_up, bf16* out, int ffn) {
    const std::size_t row = blockIdx.y;
    const int i = static_cast<int>(first_index());
    if (i >= ffn) return;
    const float gate = __bfloat162float(gate_up[row * 2 * ffn + i]);
    const float up = __bfloat162float(gate_up[(row * 2 + 1) * ffn + i]);
    out[row * ffn + i] = __float2bfloat16(gate / (1.0f + expf(-gate)) * up);
}

__global__ void argmax_kernel(const float* logits, std::int32_t* next, int vocab) {
    __shared__ float values[warp_size];
    __shared__ int indices[warp_size];
    const float* const row = logits + static_cast<std::size_t>(blockIdx.x) * vocab;
    float best = -INFINITY;
    int index = 0;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        if (row[i] > best) {
            best = row[i];
            index = i;
        }
    }
    const auto reduce = [&] {
        for (int step = warp_size / 2; step > 0; step /= 2) {
            const float other = __shfl_xor_sync(full_warp, best, step);
            const int other_index = __shfl_xor_sync(full_warp, index, step);
            if (other > best || (other == best && other_index < index)) {
                best = other;
                index = other_index;
            }
        }
    };
    reduce();
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    if (lane == 0) {
        values[warp] = best;
        indices[warp] = index;
    }
    __syncthreads();
    if (warp != 0) return;
    const bool there = lane < static_cast<int>(blockDim.x) / warp_size;
    best = there ? values[lane] : -INFINITY;
    index = there ? indices[lane] : vocab - 1;
    reduce();
    if (lane == 0) next[blockIdx.x] = index;
}

__device__ std::uint64_t now() {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}
__global__ void spin_kernel(std::uint64_t nanoseconds, float* never) {
    const std::uint64_t start = now();
    float value = static_cast<float>(threadIdx.x);
    while (now() - start < nanoseconds) {
        for (int i = 0; i < 1024; ++i) value = fmaf(value, 0.999f, 1.0f);
    }
    if (value < 0) *never = value; // never true, but the compiler cannot know that
}

constexpr unsigned block = 256;
unsigned blocks_for(std::size_t count) {
    const std::size_t wanted = (count + block - 1) / block;
    return static_cast<unsigned>(wanted < 65536 ? wanted : 65536);
}

} // namespace

void fill_random(bf16* out, std::size_t count, float mean, float deviation, std::uint64_t seed, cudaStream_t stream) {
    fill_random_kernel<<<blocks_for(count), block, 0, stream>>>(out, count, mean, deviation, seed);
    launched("fill_random");
}

void nudge(bf16* data, std::size_t count, float strength, std::uint64_t seed, cudaStream_t stream) {
    nudge_kernel<<<blocks_for(count), block, 0, stream>>>(data, count, strength, seed);
    launched("nudge");
}

void add_checksum(const bf16* data, std::size_t count, std::uint64_t seed, std::uint64_t* sum, cudaStream_t stream) {
    checksum_kernel<<<blocks_for(count / 4), block, 0, stream>>>(
        reinterpret_cast<const std::uint64_t*>(data), count / 4, seed, reinterpret_cast<unsigned long long*>(sum));
    launched("add_checksum");
}

void make_rotary(float2* table, int positions, int head_dim, cudaStream_t stream) {
    const std::size_t count = static_cast<std::size_t>(positions) * static_cast<std::size_t>(head_dim / 2);
    rotary_kernel<<<blocks_for(count), block, 0, stream>>>(table, positions, head_dim / 2);
    launched("make_rotary");
}

void embed(const StepInputs& inputs, const bf16* table, float* residual, int rows, int hidden, cudaStream_t stream) {
    embed_kernel<<<static_cast<unsigned>(rows), block, 0, stream>>>(inputs, table, residual, hidden);
    launched("embed");
}

void add_and_norm(float* residual, const bf16* delta, const bf16* gain, bf16* out, int rows, int hidden,
                  cudaStream_t stream) {
    add_and_norm_kernel<<<static_cast<unsigned>(rows), 512, 0, stream>>>(residual, delta, gain, out, hidden);
    launched("add_and_norm");
}

void rotate_and_store(const StepInputs& inputs, const AttentionShape& shape, const float2* rotary, bf16* qkv,
                      bf16* cache, int rows, cudaStream_t stream) {
    const dim3 grid{static_cast<unsigned>(rows), static_cast<unsigned>(shape.heads + 2 * shape.kv_heads)};
    rotate_and_store_kernel<<<grid, static_cast<unsigned>(shape.head_dim / 2), 0, stream>>>(inputs, shape, rotary, qkv,
                                                                                            cache);
    launched("rotate_and_store");
}

void attention(const StepInputs& inputs, const AttentionShape& shape, const bf16* qkv, const bf16* cache, bf16* out,
               int rows, cudaStream_t stream) {
    const dim3 grid{static_cast<unsigned>(rows), static_cast<unsigned>(shape.heads)};
    constexpr unsigned threads = attention_warps * warp_size;
    if (shape.head_dim == 128)
        attention_kernel<128><<<grid, threads, 0, stream>>>(inputs, shape, qkv, cache, out);
    else
        attention_kernel<64><<<grid, threads, 0, stream>>>(inputs, shape, qkv, cache, out);
    launched("attention");
}

void swiglu(const bf16* gate_up, bf16* out, int rows, int ffn, cudaStream_t stream) {
    const dim3 grid{(static_cast<unsigned>(ffn) + block - 1) / block, static_cast<unsigned>(rows)};
    swiglu_kernel<<<grid, block, 0, stream>>>(gate_up, out, ffn);
    launched("swiglu");
}

void argmax(const float* logits, std::int32_t* next, int rows, int vocab, cudaStream_t stream) {
    argmax_kernel<<<static_cast<unsigned>(rows), 1024, 0, stream>>>(logits, next, vocab);
    launched("argmax");
}

void spin(std::uint64_t nanoseconds, int multiprocessors, cudaStream_t stream) {
    spin_kernel<<<static_cast<unsigned>(4 * multiprocessors), block, 0, stream>>>(nanoseconds, nullptr);
    launched("spin");
}

} // namespace engine
