// Capturing CUDA graphs whose memory is paused with a tag.
#pragma once

#include "memsaver/graph/graph_handle.hpp"
#include "memsaver/saver/memory_saver.hpp"

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

/// Written as `{.mode = ..., .policy = ...}`.
struct CaptureOptions {
    /// What calls that may wait do to the capture when the program makes them meanwhile, as cudaStreamCaptureMode.
    /// memsaver's own calls are harmless in every mode.
    CaptureMode mode = CaptureMode::global;
    /// What becomes of the tag's bytes when it is paused. None: the tag's own policy; for a new tag the saver's default
    /// policy or, without one, `HostBackup{}`: a graph may read what only the capture, or the program beside it, wrote.
    /// Discarding is asked for by name.
    std::optional<AnyPolicy> policy{};
    /// The device of the stream and of the memory, if not the saver's own.
    std::optional<AnyDriver> device{};
};

namespace detail {

/// What the public `capture` does.
[[nodiscard]] Graph captured(SaverCore& saver, TagName tag, StreamRef stream, const CaptureOptions& options,
                             const std::function<void()>& body);

} // namespace detail

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
template <class D, std::invocable Body>
[[nodiscard]] Graph capture(MemorySaver<D>& saver, TagName tag, StreamRef stream, const CaptureOptions& options,
                            Body&& body) {
    return detail::captured(*saver.core(), tag, stream, options, [&] { std::invoke(std::forward<Body>(body)); });
}

/// The same with the options as they are by default.
template <class D, std::invocable Body>
[[nodiscard]] Graph capture(MemorySaver<D>& saver, TagName tag, StreamRef stream, Body&& body) {
    return detail::captured(*saver.core(), tag, stream, {}, [&] { std::invoke(std::forward<Body>(body)); });
}

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/graph/capture.ipp"
#endif
