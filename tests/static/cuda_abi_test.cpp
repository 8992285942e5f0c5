// The declarations of driver/cuda_abi.hpp and driver/cuda_api.hpp agree with the toolkit's headers, if there are any:
// constants, the layout of structures, and each entry point's arguments.
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)

#include "memsaver/driver/cuda_api.hpp"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <type_traits>

namespace static_cuda_abi_test {
using namespace memsaver::detail;
using memsaver::StatusKind;

// --- Numbers ---

static_assert(cuda::success == CUDA_SUCCESS);
static_assert(cuda::error_out_of_memory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::error_no_device == CUDA_ERROR_NO_DEVICE);
static_assert(cuda::error_invalid_handle == CUDA_ERROR_INVALID_HANDLE);
static_assert(cuda::error_not_ready == CUDA_ERROR_NOT_READY);
static_assert(cuda::error_not_supported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(cuda::error_capture_implicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);

static_assert(cuda::attribute_host_pointers == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
static_assert(cuda::attribute_virtual_memory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(cuda::attribute_export_file_descriptor ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(cuda::attribute_rdma_with_virtual_memory == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
#if CUDA_VERSION >= 12020
static_assert(cuda::attribute_host_numa_id == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
#endif
#if CUDA_VERSION >= 12040
static_assert(cuda::attribute_export_fabric == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
static_assert(cuda::handle_fabric == CU_MEM_HANDLE_TYPE_FABRIC);
#endif

static_assert(cuda::allocation_pinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::handle_file_descriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(cuda::location_device == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(cuda::location_host == CU_MEM_LOCATION_TYPE_HOST);
static_assert(cuda::access_read == CU_MEM_ACCESS_FLAGS_PROT_READ);
static_assert(cuda::access_read_write == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cuda::granularity_minimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(cuda::granularity_recommended == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
static_assert(cuda::pool_reserved_memory == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
static_assert(cuda::graph_reserved_memory == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
static_assert(cuda::capture_global == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(cuda::capture_thread_local == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(cuda::capture_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::capture_none == CU_STREAM_CAPTURE_STATUS_NONE);

static_assert(cuda::stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::event_disable_timing == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::event_wait_external == CU_EVENT_WAIT_EXTERNAL);
static_assert(cuda::host_register_portable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(cuda::legacy_stream == CU_GET_PROC_ADDRESS_LEGACY_STREAM);

constexpr bool gone(CUresult result) { return cuda_status_kind(static_cast<int>(result)) == StatusKind::gone; }
static_assert(gone(CUDA_ERROR_NOT_INITIALIZED) && gone(CUDA_ERROR_DEINITIALIZED));
static_assert(gone(CUDA_ERROR_DEVICE_UNAVAILABLE) && gone(CUDA_ERROR_INVALID_CONTEXT));
static_assert(gone(CUDA_ERROR_ECC_UNCORRECTABLE) && gone(CUDA_ERROR_NVLINK_UNCORRECTABLE));
static_assert(gone(CUDA_ERROR_ILLEGAL_ADDRESS) && gone(CUDA_ERROR_LAUNCH_TIMEOUT));
static_assert(gone(CUDA_ERROR_CONTEXT_IS_DESTROYED) && gone(CUDA_ERROR_ASSERT));
static_assert(gone(CUDA_ERROR_HARDWARE_STACK_ERROR) && gone(CUDA_ERROR_ILLEGAL_INSTRUCTION));
static_assert(gone(CUDA_ERROR_MISALIGNED_ADDRESS) && gone(CUDA_ERROR_INVALID_ADDRESS_SPACE));
static_assert(gone(CUDA_ERROR_INVALID_PC) && gone(CUDA_ERROR_LAUNCH_FAILED));
static_assert(gone(CUDA_ERROR_SYSTEM_NOT_READY) && gone(CUDA_ERROR_MPS_CONNECTION_FAILED));
static_assert(gone(CUDA_ERROR_MPS_RPC_FAILURE) && gone(CUDA_ERROR_MPS_CLIENT_TERMINATED));
static_assert(gone(CUDA_ERROR_EXTERNAL_DEVICE));
#if CUDA_VERSION >= 12080
static_assert(gone(CUDA_ERROR_CONTAINED) && gone(CUDA_ERROR_TENSOR_MEMORY_LEAK));
#endif
static_assert(cuda_status_kind(CUDA_ERROR_OUT_OF_MEMORY) == StatusKind::out_of_memory);
static_assert(cuda_status_kind(CUDA_ERROR_INVALID_VALUE) == StatusKind::other);
static_assert(cuda_status_kind(CUDA_ERROR_NOT_READY) == StatusKind::other);
static_assert(cuda_status_kind(CUDA_ERROR_UNKNOWN) == StatusKind::other);

// --- Structures ---

template <class Ours, class Theirs>
constexpr bool same_size = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

// A member with a different offset or size does not compile.
#define MEMSAVER_TEST_MEMBER(Ours, member, Theirs, their_member)                                                       \
    static_assert(offsetof(Ours, member) == offsetof(Theirs, their_member) &&                                          \
                  sizeof(Ours::member) == sizeof(Theirs::their_member))

static_assert(same_size<cuda::MemLocation, CUmemLocation>);
MEMSAVER_TEST_MEMBER(cuda::MemLocation, type, CUmemLocation, type);
MEMSAVER_TEST_MEMBER(cuda::MemLocation, id, CUmemLocation, id);

#if CUDA_VERSION >= 12080
static_assert(same_size<cuda::CopyAttributes, CUmemcpyAttributes>);
MEMSAVER_TEST_MEMBER(cuda::CopyAttributes, source_order, CUmemcpyAttributes, srcAccessOrder);
MEMSAVER_TEST_MEMBER(cuda::CopyAttributes, from, CUmemcpyAttributes, srcLocHint);
MEMSAVER_TEST_MEMBER(cuda::CopyAttributes, to, CUmemcpyAttributes, dstLocHint);
MEMSAVER_TEST_MEMBER(cuda::CopyAttributes, flags, CUmemcpyAttributes, flags);
#endif

static_assert(same_size<cuda::AllocationProp, CUmemAllocationProp>);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, type, CUmemAllocationProp, type);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, handle_types, CUmemAllocationProp, requestedHandleTypes);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, location, CUmemAllocationProp, location);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, win32_meta_data, CUmemAllocationProp, win32HandleMetaData);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, compression_type, CUmemAllocationProp, allocFlags.compressionType);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, usage, CUmemAllocationProp, allocFlags.usage);
MEMSAVER_TEST_MEMBER(cuda::AllocationProp, reserved, CUmemAllocationProp, allocFlags.reserved);

static_assert(same_size<cuda::Uuid, CUuuid>);

static_assert(same_size<cuda::AccessDesc, CUmemAccessDesc>);
MEMSAVER_TEST_MEMBER(cuda::AccessDesc, location, CUmemAccessDesc, location);
MEMSAVER_TEST_MEMBER(cuda::AccessDesc, flags, CUmemAccessDesc, flags);

static_assert(same_size<cuda::GraphUpdateResult, CUgraphExecUpdateResultInfo>);
MEMSAVER_TEST_MEMBER(cuda::GraphUpdateResult, result, CUgraphExecUpdateResultInfo, result);
MEMSAVER_TEST_MEMBER(cuda::GraphUpdateResult, error_node, CUgraphExecUpdateResultInfo, errorNode);
MEMSAVER_TEST_MEMBER(cuda::GraphUpdateResult, error_from_node, CUgraphExecUpdateResultInfo, errorFromNode);

#undef MEMSAVER_TEST_MEMBER

// --- Entry points: the types of the table against the toolkit's own declarations ---

template <class T>
struct Pointee {
    using Type = void;
};
template <class T>
struct Pointee<T*> {
    using Type = std::remove_cv_t<T>;
};

template <class Ours, class Theirs>
constexpr bool is_counterpart = false;
template <>
constexpr bool is_counterpart<cuda::AllocationProp, CUmemAllocationProp> = true;
template <>
constexpr bool is_counterpart<cuda::AccessDesc, CUmemAccessDesc> = true;
template <>
constexpr bool is_counterpart<cuda::Uuid, CUuuid> = true;
#if CUDA_VERSION >= 12080
template <>
constexpr bool is_counterpart<cuda::CopyAttributes, CUmemcpyAttributes> = true;
#endif
template <>
constexpr bool is_counterpart<cuda::GraphUpdateResult, CUgraphExecUpdateResultInfo> = true;

template <class T>
constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;

/// Passed in the same way, with equivalent pointed-to types. The toolkit's enumerations are ints here.
template <class Ours, class Theirs>
constexpr bool passed_alike() {
    using To = typename Pointee<Ours>::Type;
    using ToTheirs = typename Pointee<Theirs>::Type;
    if constexpr (std::is_same_v<Ours, Theirs>) {
        return true;
    } else if constexpr (is_number<Ours> && is_number<Theirs>) {
        return sizeof(Ours) == sizeof(Theirs);
    } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs> && !std::is_void_v<To> &&
                         !std::is_void_v<ToTheirs>) {
        return is_counterpart<To, ToTheirs> || passed_alike<To, ToTheirs>();
    } else {
        return false;
    }
}

template <class Ours, class Theirs>
constexpr bool alike = false;
template <class R, class... A, class TheirR, class... TheirA>
requires(sizeof...(A) == sizeof...(TheirA)) constexpr bool alike<R (*)(A...), TheirR (*)(TheirA...)> =
    passed_alike<R, TheirR>() && (passed_alike<A, TheirA>() && ...);

static_assert(!alike<int (*)(int), int (*)(int, int)> && !alike<int (*)(int*), int (*)(long*)>);
static_assert(!alike<int (*)(int), int (*)(unsigned long)> && !alike<int (*)(void*), int (*)(long)>);
static_assert(!alike<int (*)(CUstream), int (*)(CUevent)>);

using Api = CudaApi;
static_assert(alike<decltype(Api::init), PFN_cuInit_v2000>);
static_assert(alike<decltype(Api::error_name), PFN_cuGetErrorName_v6000>);
static_assert(alike<decltype(Api::device_count), PFN_cuDeviceGetCount_v2000>);
static_assert(alike<decltype(Api::device_get), PFN_cuDeviceGet_v2000>);
static_assert(alike<decltype(Api::device_name), PFN_cuDeviceGetName_v2000>);
static_assert(alike<decltype(Api::device_uuid), PFN_cuDeviceGetUuid_v11040>);
static_assert(alike<decltype(Api::device_attribute), PFN_cuDeviceGetAttribute_v2000>);
static_assert(alike<decltype(Api::can_access_peer), PFN_cuDeviceCanAccessPeer_v4000>);
static_assert(alike<decltype(Api::primary_retain), PFN_cuDevicePrimaryCtxRetain_v7000>);
static_assert(alike<decltype(Api::primary_release), PFN_cuDevicePrimaryCtxRelease_v11000>);
static_assert(alike<decltype(Api::ctx_get), PFN_cuCtxGetCurrent_v4000>);
static_assert(alike<decltype(Api::ctx_push), PFN_cuCtxPushCurrent_v4000>);
static_assert(alike<decltype(Api::ctx_pop), PFN_cuCtxPopCurrent_v4000>);
static_assert(alike<decltype(Api::ctx_synchronize), PFN_cuCtxSynchronize_v2000>);
static_assert(alike<decltype(Api::exchange_capture_mode), PFN_cuThreadExchangeStreamCaptureMode_v10010>);
static_assert(alike<decltype(Api::mem_granularity), PFN_cuMemGetAllocationGranularity_v10020>);
static_assert(alike<decltype(Api::mem_info), PFN_cuMemGetInfo_v3020>);
static_assert(alike<decltype(Api::mem_reserve), PFN_cuMemAddressReserve_v10020>);
static_assert(alike<decltype(Api::mem_unreserve), PFN_cuMemAddressFree_v10020>);
static_assert(alike<decltype(Api::mem_create), PFN_cuMemCreate_v10020>);
static_assert(alike<decltype(Api::mem_release), PFN_cuMemRelease_v10020>);
static_assert(alike<decltype(Api::mem_export), PFN_cuMemExportToShareableHandle_v10020>);
static_assert(alike<decltype(Api::mem_import), PFN_cuMemImportFromShareableHandle_v10020>);
static_assert(alike<decltype(Api::mem_map), PFN_cuMemMap_v10020>);
static_assert(alike<decltype(Api::mem_unmap), PFN_cuMemUnmap_v10020>);
static_assert(alike<decltype(Api::mem_set_access), PFN_cuMemSetAccess_v10020>);
static_assert(alike<decltype(Api::mem_alloc), PFN_cuMemAlloc_v3020>);
static_assert(alike<decltype(Api::mem_free), PFN_cuMemFree_v3020>);
static_assert(alike<decltype(Api::ctx_device), PFN_cuCtxGetDevice_v2000>);
static_assert(alike<decltype(Api::default_pool), PFN_cuDeviceGetDefaultMemPool_v11020>);
static_assert(alike<decltype(Api::pool_attribute), PFN_cuMemPoolGetAttribute_v11020>);
static_assert(alike<decltype(Api::pool_trim), PFN_cuMemPoolTrimTo_v11020>);
static_assert(alike<decltype(Api::graph_memory), PFN_cuDeviceGetGraphMemAttribute_v11040>);
static_assert(alike<decltype(Api::graph_memory_trim), PFN_cuDeviceGraphMemTrim_v11040>);
static_assert(alike<decltype(Api::host_register), PFN_cuMemHostRegister_v6050>);
static_assert(alike<decltype(Api::host_unregister), PFN_cuMemHostUnregister_v4000>);
static_assert(alike<decltype(Api::stream_create), PFN_cuStreamCreate_v2000>);
static_assert(alike<decltype(Api::stream_destroy), PFN_cuStreamDestroy_v4000>);
static_assert(alike<decltype(Api::stream_context), PFN_cuStreamGetCtx_v9020>);
static_assert(alike<decltype(Api::stream_wait_event), PFN_cuStreamWaitEvent_v3020>);
static_assert(alike<decltype(Api::stream_capturing), PFN_cuStreamIsCapturing_v10000>);
static_assert(alike<decltype(Api::event_create), PFN_cuEventCreate_v2000>);
static_assert(alike<decltype(Api::event_destroy), PFN_cuEventDestroy_v4000>);
static_assert(alike<decltype(Api::event_record), PFN_cuEventRecord_v2000>);
static_assert(alike<decltype(Api::event_query), PFN_cuEventQuery_v2000>);
static_assert(alike<decltype(Api::event_wait), PFN_cuEventSynchronize_v2000>);
static_assert(alike<decltype(Api::copy_to_host), PFN_cuMemcpyDtoHAsync_v3020>);
static_assert(alike<decltype(Api::copy_to_device), PFN_cuMemcpyHtoDAsync_v3020>);
static_assert(alike<decltype(Api::copy_on_devices), PFN_cuMemcpyDtoDAsync_v3020>);
static_assert(alike<decltype(Api::module_load), PFN_cuModuleLoadData_v2000>);
static_assert(alike<decltype(Api::module_unload), PFN_cuModuleUnload_v2000>);
static_assert(alike<decltype(Api::module_function), PFN_cuModuleGetFunction_v2000>);
static_assert(alike<decltype(Api::launch_kernel), PFN_cuLaunchKernel_v4000>);
#if CUDA_VERSION >= 13000
static_assert(alike<decltype(Api::copy_batch), PFN_cuMemcpyBatchAsync_v13000>);
static_assert(cuda::source_in_stream_order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#endif
static_assert(alike<decltype(Api::fill), PFN_cuMemsetD8Async_v3020>);
static_assert(alike<decltype(Api::begin_capture), PFN_cuStreamBeginCapture_v10010>);
static_assert(alike<decltype(Api::end_capture), PFN_cuStreamEndCapture_v10000>);
static_assert(alike<decltype(Api::graph_destroy), PFN_cuGraphDestroy_v10000>);
static_assert(alike<decltype(Api::graph_instantiate), PFN_cuGraphInstantiateWithFlags_v11040>);
static_assert(alike<decltype(Api::graph_exec_update), PFN_cuGraphExecUpdate_v12000>);
static_assert(alike<decltype(Api::graph_launch), PFN_cuGraphLaunch_v10000>);
static_assert(alike<decltype(Api::graph_exec_destroy), PFN_cuGraphExecDestroy_v10000>);
#if CUDA_VERSION >= 12040
static_assert(alike<decltype(Api::function_load), PFN_cuFuncLoad_v12040>);
#endif
#if CUDA_VERSION >= 12050
static_assert(alike<decltype(Api::ctx_record_event), PFN_cuCtxRecordEvent_v12050>);
#endif

} // namespace static_cuda_abi_test

#endif
