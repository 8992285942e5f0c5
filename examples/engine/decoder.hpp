// Decoding: one CUDA graph for each batch size. Memory that a graph needs besides the weights and the cache is
// allocated during its capture, in the tag "graphs", whose bytes are saved by a pause.
#pragma once

#include "step_buffers.hpp"

#include <memsaver/memsaver.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

/// A captured step of a fixed number of rows.
struct DecodeGraph {
    StepBuffers buffers; // outlive the graph
    memsaver::Graph graph;
};

class Decoder {
public:
    Decoder(Saver& saver, const Model& model, memsaver::WorkspacePool& workspaces, int slots, int pages_per_slot)
        : saver_{saver}, model_{model}, workspaces_{workspaces}, slots_{slots}, pages_per_slot_{pages_per_slot} {}

    /// Call in ascending order of size. Every kernel must have run before, because a capture cannot load kernels.
    void capture(int rows, cudaStream_t stream) {
        auto made = std::make_unique<DecodeGraph>();
        made->graph = memsaver::capture(saver_, "graphs", stream, [&] {
            const memsaver::Arena arena = saver_.arena("graphs");
            made->buffers = StepBuffers{arena, model_.size(), rows, slots_, pages_per_slot_, side_.get()};
            made->buffers.keep_logits(arena, model_.size());
            const std::size_t bytes = StepScratch::of(nullptr, model_.size(), rows).bytes;
            // Steps never run concurrently, so all their workspaces are in the pool's one group and share bytes.
            void* const workspace = workspaces_.get("decode " + std::to_string(rows), bytes, {.stream = stream});
            model_.step(made->buffers.memory(rows), StepScratch::of(workspace, model_.size(), rows), rows, stream);
        });
        check_cuda(cudaStreamSynchronize(side_.get()), "fill a graph's tables");
        graphs_.push_back(std::move(made));
    }

    /// Returns the smallest graph with at least `rows` rows.
    [[nodiscard]] DecodeGraph& graph_for(int rows) {
        for (const auto& graph : graphs_) {
            if (graph->buffers.rows() >= rows) return *graph;
        }
        throw std::invalid_argument{"no graph was captured for a batch of " + std::to_string(rows) + " rows"};
    }
    [[nodiscard]] std::size_t size() const noexcept { return graphs_.size(); }

private:
    Saver& saver_;
    const Model& model_;
    memsaver::WorkspacePool& workspaces_;
    int slots_;
    int pages_per_slot_;
    Stream side_ = make_stream();
    std::vector<std::unique_ptr<DecodeGraph>> graphs_;
};

} // namespace engine
