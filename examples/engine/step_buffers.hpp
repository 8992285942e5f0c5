// The memory through which the host passes inputs to a step and reads its results.
#pragma once

#include "cuda_check.hpp"
#include "model.hpp"
#include "page_table.hpp"

#include <memsaver/memsaver.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace engine {

/// One token passing through the model. The default is a padding row.
struct Row {
    int sequence = -1;
    std::int32_t token = 0;
    std::int32_t position = 0;
    std::int32_t slot = 0;
};

/// Pinned host memory for the inputs and results of one step at a time, row by row.
class StepOnHost {
public:
    StepOnHost(int rows, std::size_t table_entries)
        : inputs_{make_pinned<std::int32_t>(3 * static_cast<std::size_t>(rows) + table_entries)},
          next_{make_pinned<std::int32_t>(static_cast<std::size_t>(rows))} {}

    /// Writes `rows`, padded to `count`, and the table, in the layout that StepBuffers expects. Returns the number of
    /// integers.
    std::size_t write(std::span<const Row> rows, int count, const PageTable& table) {
        std::int32_t* at = inputs_.get();
        const auto column = [&](std::int32_t Row::*member) {
            for (int i = 0; i < count; ++i) {
                const auto index = static_cast<std::size_t>(i);
                *at++ = index < rows.size() ? rows[index].*member : Row{}.*member;
            }
        };
        column(&Row::token);
        column(&Row::position);
        column(&Row::slot);
        at = std::copy(table.entries().begin(), table.entries().end(), at);
        return static_cast<std::size_t>(at - inputs_.get());
    }
    [[nodiscard]] const std::int32_t* inputs() const noexcept { return inputs_.get(); }
    [[nodiscard]] std::int32_t* next() noexcept { return next_.get(); }

private:
    Pinned<std::int32_t> inputs_;
    Pinned<std::int32_t> next_;
};

/// The device's side, for steps with one number of rows. The rotary table is written once, here, and only read by
/// steps: a graph's own copy has bytes that only its capture wrote.
class StepBuffers {
public:
    StepBuffers() = default;
    /// `stream` must not be in capture: the writes here happen once and not at every replay. All rows are padding until
    /// a step sets them.
    StepBuffers(const memsaver::Arena& arena, const ModelSize& size, int rows, int slots, int pages_per_slot,
                cudaStream_t stream)
        : rows_{rows}, pages_per_slot_{pages_per_slot}, inputs_{arena, 3 * rows + slots * pages_per_slot},
          next_{arena, rows}, rotary_{arena, size.max_positions * size.head_dim / 2} {
        make_rotary(rotary_.data(), size.max_positions, size.head_dim, stream);
        check_cuda(cudaMemsetAsync(inputs_.data(), 0, inputs_.size_bytes(), stream), "clear a step's inputs");
    }
    /// Adds memory for the logits of a graph's step.
    void keep_logits(const memsaver::Arena& arena, const ModelSize& size) {
        logits_ =
            memsaver::Buffer<float>{arena, static_cast<std::size_t>(rows_) * static_cast<std::size_t>(size.vocab)};
    }

    /// Returns the memory for a step of `rows` rows, at most the number given to the constructor.
    [[nodiscard]] StepMemory memory(int rows) const {
        const std::int32_t* const at = inputs_.data();
        return {{at, at + rows, at + 2 * rows, at + 3 * rows, pages_per_slot_},
                rotary_.data(),
                logits_.data(),
                next_.data()};
    }
    void upload(const StepOnHost& host, std::size_t numbers, cudaStream_t stream) {
        check_cuda(cudaMemcpyAsync(inputs_.data(), host.inputs(), numbers * sizeof(std::int32_t),
                                   cudaMemcpyHostToDevice, stream),
                   "copy a step's inputs");
    }
    void download(StepOnHost& host, int rows, cudaStream_t stream) const {
        check_cuda(cudaMemcpyAsync(host.next(), next_.data(), static_cast<std::size_t>(rows) * sizeof(std::int32_t),
                                   cudaMemcpyDeviceToHost, stream),
                   "copy a step's tokens");
        check_cuda(cudaStreamSynchronize(stream), "wait for a step");
    }
    [[nodiscard]] int rows() const noexcept { return rows_; }

private:
    int rows_ = 0;
    int pages_per_slot_ = 0;
    memsaver::Buffer<std::int32_t> inputs_; // tokens, positions, slots, then the page table
    memsaver::Buffer<std::int32_t> next_;
    memsaver::Buffer<float2> rotary_;
    memsaver::Buffer<float> logits_;
};

} // namespace engine
