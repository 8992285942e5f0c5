// The library's small values as the CUDA driver's own types.
#pragma once

#include "memsaver/driver/cuda_api.hpp"
#include "memsaver/driver/handles.hpp"

#if MEMSAVER_HAS_CUDA_HEADERS

namespace memsaver::inline v0_1 {

inline CUstream native(StreamRef stream) noexcept { return static_cast<CUstream>(stream.native()); }
inline CUevent native(EventRef event) noexcept { return static_cast<CUevent>(event.native()); }
inline CUmemoryPool native(PoolRef pool) noexcept { return static_cast<CUmemoryPool>(pool.native()); }
inline CUgraphExec native(GraphRef graph) noexcept { return static_cast<CUgraphExec>(graph.native); }
inline CUstreamCaptureMode native(CaptureMode mode) noexcept {
    switch (mode) {
    case CaptureMode::global: return CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CaptureMode::thread_local_: return CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    case CaptureMode::relaxed: break;
    }
    return CU_STREAM_CAPTURE_MODE_RELAXED;
}

} // namespace memsaver::inline v0_1

#endif // MEMSAVER_HAS_CUDA_HEADERS
