// A captured graph in the program's hands.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/handles.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

/// See Graph for what each method promises.
class GraphBase {
public:
    GraphBase() = default;
    GraphBase(const GraphBase&) = delete;
    GraphBase& operator=(const GraphBase&) = delete;
    virtual ~GraphBase() = default;

    virtual void launch(StreamRef stream) = 0;
    virtual void update(StreamRef stream, const std::function<void()>& body) = 0;

    [[nodiscard]] virtual const std::string& tag() const noexcept = 0;
    [[nodiscard]] virtual int device() const noexcept = 0;
    [[nodiscard]] virtual GraphRef native() const noexcept = 0;
};

} // namespace detail

/// Owns an executable graph, the blocks that were given up while it was captured, and the gates that it waits at.
/// Move-only; may outlive its saver, whose core it keeps alive. What `capture` answers; a default one stands for no
/// graph, and every use of it is Misuse. As the driver's own graphs, one is used by one thread at a time.
///
/// Its end is quiet: launches that are under way run to their end, and the blocks it kept are handed out again once the
/// device has passed them. Failures go to the saver's event sink.
class Graph {
public:
    Graph() = default;
    explicit Graph(std::unique_ptr<detail::GraphBase> graph) noexcept : graph_{std::move(graph)} {}

    /// Replays what was captured, in the order of `stream`. Does not wait. Throws Misuse, naming the tag, while any of
    /// its tag's memory is paused, being paused, or gone by `close()`; or what a failing driver call stands for. Memory
    /// of other tags is not looked at: the program resumes what its graphs read.
    void launch(StreamRef stream) const { base().launch(stream); }

    /// Captures again, into the same tag and in the same mode: from here on it is what `body` does. The executable
    /// takes the new work in place where the driver can, otherwise another one takes its place. What the last capture
    /// gave up is the arena's again. If `body` or the capture fails, the graph is as it was. Throws as `capture` does.
    void update(StreamRef stream, const std::function<void()>& body) { base().update(stream, body); }

    /// Ends it now, as its destructor does.
    void reset() noexcept { graph_.reset(); }

    /// The name of the tag that it was captured in.
    [[nodiscard]] const std::string& tag() const { return base().tag(); }
    /// The number of its device.
    [[nodiscard]] int device() const { return base().device(); }
    /// The driver's executable, for the program's own use: on a GPU `native` is a CUgraphExec. `update` may change it.
    [[nodiscard]] GraphRef native() const { return base().native(); }

    [[nodiscard]] explicit operator bool() const noexcept { return graph_ != nullptr; }

private:
    [[nodiscard]] detail::GraphBase& base() const;

    std::unique_ptr<detail::GraphBase> graph_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/graph/graph_handle.ipp"
#endif
