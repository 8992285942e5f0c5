// The CUDA driver's binary interface: the few types, constants and structures that its calls take. Declared here so
// that memsaver compiles without a toolkit; tests/static/cuda_abi_test.cpp compares them with <cuda.h>.
#pragma once

#include "memsaver/core/handles.hpp"

struct CUctx_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUmod_st;

namespace memsaver::inline v0_3::detail::cuda {

using Result = int;
using Device = int;
using DevicePtr = unsigned long long;
using PageHandle = unsigned long long;
using Context = CUctx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;
using MemPool = CUmemPoolHandle_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;

// CUresult
inline constexpr Result success = 0;
inline constexpr Result error_out_of_memory = 2;
inline constexpr Result error_no_device = 100;
inline constexpr Result error_invalid_handle = 400;
inline constexpr Result error_not_ready = 600;
inline constexpr Result error_not_supported = 801;
inline constexpr Result error_capture_implicit = 906;

// CUdevice_attribute
inline constexpr int attribute_host_pointers = 91; // registered pages have the same address on the device
inline constexpr int attribute_virtual_memory = 102;
inline constexpr int attribute_export_file_descriptor = 103;
inline constexpr int attribute_rdma_with_virtual_memory = 110;
inline constexpr int attribute_export_fabric = 128;
inline constexpr int attribute_host_numa_id = 134; // CUDA 12.2

// CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags, granularity flags
inline constexpr int allocation_pinned = 1;
inline constexpr int handle_file_descriptor = 1;
inline constexpr int handle_fabric = 8;
inline constexpr int location_device = 1;
inline constexpr int location_host = 2;
inline constexpr int source_in_stream_order = 1;
inline constexpr int access_read = 1;
inline constexpr int access_read_write = 3;
inline constexpr int granularity_minimum = 0;
inline constexpr int granularity_recommended = 1;

// CUmemPool_attribute and CUgraphMem_attribute
inline constexpr int pool_reserved_memory = 5;
inline constexpr int graph_reserved_memory = 2;

// CUstreamCaptureMode and CUstreamCaptureStatus
inline constexpr int capture_global = 0;
inline constexpr int capture_thread_local = 1;
inline constexpr int capture_relaxed = 2;
inline constexpr int capture_none = 0;

// Flags of single calls
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_disable_timing = 2;
inline constexpr unsigned event_wait_external = 1;
inline constexpr unsigned host_register_portable = 1;
inline constexpr unsigned long long legacy_stream = 1;

struct Uuid {
    char bytes[16];
};

struct MemLocation {
    int type = 0;
    int id = 0;
};

struct CopyAttributes {
    int source_order = 0;
    MemLocation from{};
    MemLocation to{};
    unsigned flags = 0;
};

struct AllocationProp {
    int type = 0;
    int handle_types = 0;
    MemLocation location{};
    void* win32_meta_data = nullptr;
    unsigned char compression_type = 0;
    unsigned char rdma_capable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
};

struct AccessDesc {
    MemLocation location{};
    int flags = 0;
};

struct GraphUpdateResult {
    int result = 0;
    void* error_node = nullptr;
    void* error_from_node = nullptr;
};

} // namespace memsaver::inline v0_3::detail::cuda
