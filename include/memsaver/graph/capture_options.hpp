// The options of a capture.
#pragma once

#include "memsaver/saver/saver.hpp"

#include <optional>

namespace memsaver::inline v0_1 {

/// `D` is the saver's driver; written as `{.mode = ..., .policy = ...}`.
template <class D>
struct CaptureOptions {
    /// What calls that may wait do to the capture when the program makes them meanwhile, as cudaStreamCaptureMode.
    /// memsaver's own calls are harmless in every mode.
    CaptureMode mode = CaptureMode::global;
    /// What becomes of the tag's bytes when it is paused. None: the tag's own policy, and `HostBackup{}` for a new tag:
    /// a graph may read what only the capture, or the program beside it, wrote. Discarding is asked for by name.
    std::optional<AnyBackup<D>> policy{};
    /// The device of the stream and of the memory, if not the saver's own.
    std::optional<D> device{};
};

} // namespace memsaver::inline v0_1
