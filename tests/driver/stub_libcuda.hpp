// Shared by the stub libcuda.so.1 and its test: switches for the test to set, and a log of calls. Plain values only, so
// that it needs no CUDA headers.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// The CUDA driver's constants, by name: defined independently, to detect wrong values in the library.
namespace cuda_names {
enum Number : int {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,

    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,

    CU_EVENT_DISABLE_TIMING = 2,
    CU_EVENT_WAIT_EXTERNAL = 1,
    CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_STREAM_NON_BLOCKING = 1,
};
} // namespace cuda_names

struct StubCall {
    std::string name;
    std::string text;   ///< the arguments, formatted for the test
    int context_device; ///< the device of the current context, -1 for none
    int capture_mode;   ///< the thread's, as CUstreamCaptureMode
};

/// What a test sets, and what it reads.
struct StubValues {
    // Switches.
    int version = 13000;
    int devices = 2;
    std::string missing = {};              ///< an entry point that the driver lacks
    std::map<std::string, int> fails = {}; ///< results of calls by name; the call then does nothing
    std::map<int, int> attributes = {};    ///< values of device attributes; 1 by default
    bool peers_can_access = true;
    std::size_t minimum = 2U << 20;
    std::size_t recommended = 2U << 20;
    int capture_status = 0; ///< of every stream

    // Recorded calls.
    std::vector<StubCall> calls = {};
    std::vector<std::pair<std::string, int>> asked = {}; ///< cuGetProcAddress: names and versions
    std::vector<unsigned long long> flavours = {};       ///< and its flags
    unsigned streams = 0;                                ///< number of created streams: 0x100, 0x200, ...
};

/// One per library. Call `reset()` between tests; it keeps the count of contexts, which must return to 0.
struct StubState : StubValues {
    std::mutex mutex = {};
    std::map<int, int> retained = {}; ///< primary contexts by device

    void reset() {
        const std::lock_guard lock{mutex};
        static_cast<StubValues&>(*this) = {};
    }
};

/// One per thread.
struct StubThread {
    std::vector<void*> contexts = {};
    int capture_mode = 0; ///< CU_STREAM_CAPTURE_MODE_GLOBAL, as every thread starts
};

extern "C" {
StubState* memsaver_stub_state();
StubThread* memsaver_stub_thread();
}
