// Captures CUDA graphs whose memory is paused and resumed with a tag.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/saver/memory_saver.hpp"

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// Options of `capture`, written as `{.mode = ..., .policy = ...}`.
struct CaptureOptions {
    /// How the capture reacts to blocking calls that the program makes during it, as in cudaStreamCaptureMode.
    /// memsaver's own calls are harmless in every mode.
    CaptureMode mode = CaptureMode::global;
    /// The tag's policy. If unset: the existing tag's policy; for a new tag the saver's default policy or, without one,
    /// `HostBackup{}`, because a graph may read bytes that only the capture, or the program during the capture, has
    /// written. Name `Discard{}` explicitly to discard them.
    std::optional<AnyPolicy> policy{};
    /// The device of the stream and of the memory, if it is not the saver's.
    std::optional<AnyDriver> device{};
};

/// Owns an executable graph, the blocks that were freed while it was captured, and the gates that it waits at. Returned
/// by `capture`. Move-only. Keeps the saver's core alive, so it may outlive its saver. A default-constructed Graph is
/// empty; any use of it is Misuse. Like a CUDA graph, it must be used by one thread at a time.
///
/// The destructor does not throw. Launches in flight complete, and the blocks that the graph kept are reused once the
/// device has completed all work submitted so far. Failures go to the saver's event sink.
class Graph {
public:
    Graph() = default;
    explicit Graph(std::shared_ptr<detail::CapturedGraph> graph) noexcept : graph_{std::move(graph)} {}
    Graph(Graph&&) noexcept = default;
    Graph& operator=(Graph&&) noexcept = default;

    /// Launches the graph on `stream`. Does not wait. Throws Misuse, naming the tag, if any of the tag's memory is
    /// paused, being paused, or released by `close()`; or the exception for a failed driver call. Does not check the
    /// memory of other tags: the program must resume all tags that its graphs read.
    void launch(StreamRef stream) const;

    /// Captures `body` again, into the same tag and in the same mode, and replaces the recorded work. The executable
    /// graph is updated in place if the driver supports the change, otherwise replaced. Blocks freed during the
    /// previous capture return to the arena. If `body` or the capture fails, the graph is unchanged. Throws as
    /// `capture`.
    void update(StreamRef stream, detail::FunctionRef<void()> body);

    /// Destroys the graph now, like the destructor.
    void reset() noexcept { graph_.reset(); }

    /// The tag that the graph was captured in.
    [[nodiscard]] const std::string& tag() const;
    /// The number of its device.
    [[nodiscard]] int device() const;
    /// The driver's executable graph: on a GPU, `native` is a CUgraphExec. `update` may replace it.
    [[nodiscard]] GraphRef native() const;

    [[nodiscard]] explicit operator bool() const noexcept { return graph_ != nullptr; }

private:
    [[nodiscard]] detail::CapturedGraph& captured() const;

    std::shared_ptr<detail::CapturedGraph> graph_; // never shared: the type is known to its .ipp file only
};

namespace detail {

/// Implements the public `capture`.
[[nodiscard]] Graph captured(SaverCore& saver, TagName tag, StreamRef stream, const CaptureOptions& options,
                             detail::FunctionRef<void()> body);

} // namespace detail

/// Captures a graph: runs `body` once, on this thread, while `stream` is being captured and a region of `tag` is open,
/// and returns the graph of the work that it enqueued. Nothing is executed yet. `stream` must not be the default
/// stream.
///
/// Memory that the body allocates through the saver belongs to the tag, is paused and resumed with it and keeps its
/// addresses, so the graph needs no new capture. Allocating never breaks the capture, in any mode.
///
/// Blocks that the body frees on its thread, without a stream or with one that is being captured, stay with the Graph,
/// including their bytes, because replays still use them. The same holds for blocks freed by destructors of Buffer and
/// WorkspacePool, and for blocks that any thread frees with `stream`, even inside another capture. Freeing with
/// `already_idle` frees a block at once.
///
/// While the body runs, the saver refuses pauses, exchanges, `drop` and `close`, and a trim and a `save` that wait for
/// the device. If one is in progress, the capture waits for it. Other threads may allocate, free and resume.
///
/// Throws any exception of the body; Misuse (this thread is already capturing, the stream is being captured or belongs
/// to another device, the policy differs from the tag's); or the exception for a failed driver call: DriverError if a
/// blocking call broke the capture. The stream, the tag and the saver then remain usable.
template <class D, std::invocable Body>
[[nodiscard]] Graph capture(MemorySaver<D>& saver, TagName tag, StreamRef stream, const CaptureOptions& options,
                            Body&& body) {
    return detail::captured(*saver.core(), tag, stream, options, [&] { std::invoke(std::forward<Body>(body)); });
}

/// Captures with default options.
template <class D, std::invocable Body>
[[nodiscard]] Graph capture(MemorySaver<D>& saver, TagName tag, StreamRef stream, Body&& body) {
    return detail::captured(*saver.core(), tag, stream, {}, [&] { std::invoke(std::forward<Body>(body)); });
}

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/graph/capture.ipp"
#endif
