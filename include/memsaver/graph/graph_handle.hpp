// Graph: the owner of a captured graph.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/pointers.hpp"

#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// The interface behind Graph, which documents each method.
class GraphBase {
public:
    GraphBase() = default;
    GraphBase(const GraphBase&) = delete;
    GraphBase& operator=(const GraphBase&) = delete;
    virtual ~GraphBase() = default;

    virtual void launch(StreamRef stream) = 0;
    virtual void update(StreamRef stream, detail::FunctionRef<void()> body) = 0;

    [[nodiscard]] virtual const std::string& tag() const noexcept = 0;
    [[nodiscard]] virtual int device() const noexcept = 0;
    [[nodiscard]] virtual GraphRef native() const noexcept = 0;
};

} // namespace detail

/// Owns an executable graph, the blocks that were freed while it was captured, and the gates that it waits at. Returned
/// by `capture`. Move-only. Keeps the saver's core alive, so it may outlive its saver. A default-constructed Graph is
/// empty; any use of it is Misuse. Like a CUDA graph, it must be used by one thread at a time.
///
/// The destructor does not throw. Launches in flight complete, and the blocks that the graph kept are reused once the
/// device has completed all work submitted so far. Failures go to the saver's event sink.
class Graph {
public:
    Graph() = default;
    explicit Graph(detail::UniquePtr<detail::GraphBase> graph) noexcept : graph_{std::move(graph)} {}

    /// Launches the graph on `stream`. Does not wait. Throws Misuse, naming the tag, if any of the tag's memory is
    /// paused, being paused, or released by `close()`; or the exception for a failed driver call. Does not check the
    /// memory of other tags: the program must resume all tags that its graphs read.
    void launch(StreamRef stream) const { base().launch(stream); }

    /// Captures `body` again, into the same tag and in the same mode, and replaces the recorded work. The executable
    /// graph is updated in place if the driver supports the change, otherwise replaced. Blocks freed during the
    /// previous capture return to the arena. If `body` or the capture fails, the graph is unchanged. Throws as
    /// `capture`.
    void update(StreamRef stream, detail::FunctionRef<void()> body) { base().update(stream, body); }

    /// Destroys the graph now, like the destructor.
    void reset() noexcept { graph_.reset(); }

    /// The tag that the graph was captured in.
    [[nodiscard]] const std::string& tag() const { return base().tag(); }
    /// The number of its device.
    [[nodiscard]] int device() const { return base().device(); }
    /// The driver's executable graph: on a GPU, `native` is a CUgraphExec. `update` may replace it.
    [[nodiscard]] GraphRef native() const { return base().native(); }

    [[nodiscard]] explicit operator bool() const noexcept { return graph_ != nullptr; }

private:
    [[nodiscard]] detail::GraphBase& base() const;

    detail::UniquePtr<detail::GraphBase> graph_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/graph/graph_handle.ipp"
#endif
