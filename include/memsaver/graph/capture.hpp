// Capturing CUDA graphs whose memory is paused with a tag.
#pragma once

#include "memsaver/graph/capture_options.hpp"
#include "memsaver/graph/captured_graph.hpp"
#include "memsaver/graph/graph_handle.hpp"
#include "memsaver/saver/saver.hpp"

#include <concepts>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace memsaver::inline v0_1 {

/// Runs `body` once, on this thread, while `stream` is being captured and a region of `tag` is open, and answers the
/// graph of what it enqueued. Nothing is executed yet. `stream` is not the default stream.
///
/// What the body allocates through the saver lands in the tag, is paused and resumed with it, and keeps its addresses:
/// the graph needs no new capture. Allocating never breaks the capture, in any mode.
///
/// What the body gives up on its thread, without a stream or with one that is being captured, stays with the Graph,
/// bytes included: replays still touch it. So do destructors of Buffers and WorkspacePools. So does what anybody gives
/// up with `stream`, in another capture too. `already_idle` gives it up at once.
///
/// While it runs, pauses of the saver, and trims that wait for the device, are refused; if one is under way, the
/// capture waits for its end. Other threads may allocate, free and resume.
///
/// Throws what the body throws, Misuse (a thread that is capturing already; a stream that is being captured, or of
/// another device; another policy than the tag's), or what a failing driver call stands for: DriverError if the capture
/// was broken by a call that waits. The stream, the tag and the saver are then as usable as before.
template <Driver D, std::invocable Body>
requires Captures<D>
[[nodiscard]] Graph capture(MemorySaver<D>& saver, std::string_view tag, StreamRef stream,
                            const CaptureOptions<D>& options, Body&& body) {
    std::unique_ptr<CapturedGraph<D>> graph;
    try {
        std::optional<AnyBackup<D>> of_new_tags = options.policy;
        if constexpr (Backup<HostBackup, D>) {
            if (!of_new_tags) of_new_tags = HostBackup{};
        }
        if (!of_new_tags) throw Misuse{"capture: this driver keeps no bytes on the host; name a policy"};
        const D& driver = options.device ? *options.device : saver.driver();
        ArenaBase& arena = saver.core()->arena(tag, options.policy, driver, {}, of_new_tags);
        graph = std::make_unique<CapturedGraph<D>>(saver.core(), arena, driver, options.mode);
    } catch (const std::bad_alloc&) {
        throw OutOfHostMemory{"capture of tag \"" + std::string{tag} + "\": no host memory for it"};
    }
    graph->update(stream, [&] { std::invoke(std::forward<Body>(body)); });
    return Graph{std::move(graph)};
}

/// The same with the options as they are by default.
template <Driver D, std::invocable Body>
requires Captures<D>
[[nodiscard]] Graph capture(MemorySaver<D>& saver, std::string_view tag, StreamRef stream, Body&& body) {
    return capture(saver, tag, stream, CaptureOptions<D>{}, std::forward<Body>(body));
}

} // namespace memsaver::inline v0_1
