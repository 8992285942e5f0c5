// What a host machine answers. Codes are those of the CUDA errors that a GPU would give in the same place.
#pragma once

#include "memsaver/base/status.hpp"

namespace memsaver::inline v0_1 {

struct HostStatus {
    static constexpr Status ok{};
    static constexpr Status invalid_value{StatusKind::other, 1, "HOST_ERROR_INVALID_VALUE"};
    static constexpr Status out_of_memory{StatusKind::out_of_memory, 2, "HOST_ERROR_OUT_OF_MEMORY"};
    static constexpr Status out_of_host_memory{StatusKind::out_of_host_memory, 3, "HOST_ERROR_OUT_OF_HOST_MEMORY"};
    static constexpr Status invalid_handle{StatusKind::other, 400, "HOST_ERROR_INVALID_HANDLE"};
    static constexpr Status illegal_state{StatusKind::other, 401, "HOST_ERROR_ILLEGAL_STATE"};
    static constexpr Status gone{StatusKind::gone, 700, "HOST_ERROR_ILLEGAL_ADDRESS"};
    static constexpr Status capture_unsupported{StatusKind::other, 900, "HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED"};
    static constexpr Status capture_invalidated{StatusKind::other, 901, "HOST_ERROR_STREAM_CAPTURE_INVALIDATED"};
    static constexpr Status capture_isolation{StatusKind::other, 905, "HOST_ERROR_STREAM_CAPTURE_ISOLATION"};
    static constexpr Status captured_event{StatusKind::other, 907, "HOST_ERROR_CAPTURED_EVENT"};
    static constexpr Status wrong_thread{StatusKind::other, 908, "HOST_ERROR_STREAM_CAPTURE_WRONG_THREAD"};
};

} // namespace memsaver::inline v0_1
