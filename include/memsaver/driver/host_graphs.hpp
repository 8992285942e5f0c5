// The graphs of a host machine. Does not know captures, nor who launches. Not thread safe: its machine's lock guards
// it.
#pragma once

#include "memsaver/driver/host_stream.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

class HostGraphs {
public:
    /// Takes what was recorded. Throws std::bad_alloc, having changed nothing.
    GraphRef add(std::vector<HostWork>& recorded) {
        auto graph = std::make_unique<HostGraph>();
        HostGraph* const native = graph.get();
        graphs_.emplace(native, std::move(graph)).first->second->calls.swap(recorded);
        return {native};
    }

    /// `graph` becomes what was recorded: itself if calls of the same kinds follow each other, as a driver that updates
    /// in place asks for, otherwise another one. Answers what is to be destroyed. Throws std::bad_alloc, having changed
    /// nothing.
    std::unique_ptr<HostGraph> update(GraphRef& graph, std::vector<HostWork>& recorded) {
        HostGraph* const known = find(graph);
        const auto alike = [](const HostWork& a, const HostWork& b) { return a.kind == b.kind; };
        if (known != nullptr &&
            std::equal(known->calls.begin(), known->calls.end(), recorded.begin(), recorded.end(), alike)) {
            known->calls.swap(recorded);
            return nullptr;
        }
        const GraphRef fresh = add(recorded);
        return take(std::exchange(graph, fresh));
    }

    [[nodiscard]] HostGraph* find(GraphRef graph) const noexcept {
        const auto found = graphs_.find(graph.native);
        return found == graphs_.end() ? nullptr : found->second.get();
    }

    /// The graph, no longer one of these; null if there is no such graph.
    std::unique_ptr<HostGraph> take(GraphRef graph) noexcept {
        const auto found = graphs_.find(graph.native);
        if (found == graphs_.end()) return nullptr;
        std::unique_ptr<HostGraph> taken = std::move(found->second);
        graphs_.erase(found);
        return taken;
    }

    [[nodiscard]] std::size_t size() const noexcept { return graphs_.size(); }

private:
    std::unordered_map<const void*, std::unique_ptr<HostGraph>> graphs_;
};

} // namespace memsaver::inline v0_1
