// A libcuda.so.1 whose devices are host memory, to test the preload library without a GPU. It has two devices of 1 GiB,
// and its functions are found as in the real one: by dlsym, and by cuGetProcAddress.
#undef CUDA_API_PER_THREAD_DEFAULT_STREAM // it would rename the definitions here
#include <cuda.h>

#include "memsaver/host/host_driver.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// These macros would rename the definitions here.
#undef cuMemAlloc
#undef cuMemFree
#undef cuGetProcAddress

using namespace memsaver;

namespace {

constexpr int device_count = 2;

const HostDriver& machine_of(int device) {
    static const auto* const machines = new std::vector<HostDriver>{HostDriver{1_GiB, {.device = 0, .poison = true}},
                                                                    HostDriver{1_GiB, {.device = 1, .poison = true}}};
    return (*machines)[static_cast<std::size_t>(device)];
}

// Contexts are addresses of these elements, with the device as index.
char contexts[device_count];
thread_local std::vector<CUcontext> current;

int current_device() {
    return current.empty() ? 0 : static_cast<int>(reinterpret_cast<char*>(current.back()) - contexts);
}
const HostDriver& machine() { return machine_of(current_device()); }

CUresult result(const Status& status) {
    switch (status.kind) {
    case StatusKind::ok: return CUDA_SUCCESS;
    case StatusKind::out_of_memory: return CUDA_ERROR_OUT_OF_MEMORY;
    case StatusKind::gone: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case StatusKind::out_of_host_memory:
    case StatusKind::out_of_addresses:
    case StatusKind::unsupported:
    case StatusKind::other: break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

StreamRef stream_of(CUstream stream) { return StreamRef{reinterpret_cast<HostStream*>(stream)}; }
EventRef event_of(CUevent event) { return EventRef{reinterpret_cast<HostEvent*>(event)}; }

CUresult ctx_record_event(CUcontext, CUevent event) { return result(machine().record_device(event_of(event))); }

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    return result(machine().granularity(*bytes));
}
CUresult reserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr, unsigned long long) {
    Address address = 0;
    const Status status = machine().reserve(bytes, alignment, address);
    *out = address;
    return result(status);
}
CUresult unreserve(CUdeviceptr at, std::size_t bytes) { return result(machine().unreserve(at, bytes)); }
CUresult create(CUmemGenericAllocationHandle* out, std::size_t bytes, const CUmemAllocationProp*, unsigned long long) {
    PageHandle handle;
    const Status status = machine().create(bytes, handle);
    *out = handle.value;
    return result(status);
}
CUresult release(CUmemGenericAllocationHandle handle) { return result(machine().release({handle})); }
CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
    return result(machine().map(at, bytes, {handle}));
}
CUresult unmap(CUdeviceptr at, std::size_t bytes) { return result(machine().unmap(at, bytes)); }
CUresult host_register(void* pages, std::size_t bytes, unsigned) { return result(machine().pin_host(pages, bytes)); }

CUresult stream_destroy(CUstream stream) { return result(machine().close_stream(stream_of(stream))); }
CUresult copy_to_host(void* host, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return result(machine().copy_to_host(host, from, bytes, stream_of(stream)));
}
CUresult copy_to_device(CUdeviceptr to, const void* host, std::size_t bytes, CUstream stream) {
    return result(machine().copy_to_device(to, host, bytes, stream_of(stream)));
}
CUresult fill(CUdeviceptr to, unsigned char byte, std::size_t bytes, CUstream stream) {
    return result(machine().fill(to, byte, bytes, stream_of(stream)));
}

std::atomic<unsigned long> plain_calls{0};

} // namespace

#define HOST_EXPORTED extern "C" [[gnu::visibility("default")]]

HOST_EXPORTED unsigned long host_libcuda_plain_calls() { return plain_calls; }

HOST_EXPORTED CUresult cuDriverGetVersion(int* told) { return *told = 13000, CUDA_SUCCESS; }
HOST_EXPORTED CUresult cuCtxGetDevice(CUdevice* device) { return *device = current_device(), CUDA_SUCCESS; }
HOST_EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
    ++plain_calls;
    Address address = 0;
    const Status status = machine().allocate_plain(bytes, address);
    *out = address;
    return result(status);
}
HOST_EXPORTED CUresult cuMemFree_v2(CUdeviceptr at) { return result(machine().free_plain(at)); }
HOST_EXPORTED CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) { return result(machine().free_plain(at)); }

namespace {

template <class F>
void* address(F* function) {
    return reinterpret_cast<void*>(function);
}

void* find(const char* name) {
    struct Entry {
        const char* name;
        void* function;
    };
    static const Entry entries[] = {
        {"cuInit", address(+[](unsigned) { return CUDA_SUCCESS; })},
        {"cuGetErrorName", address(+[](CUresult error, const char** text) {
             *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
             return CUDA_SUCCESS;
         })},
        {"cuDeviceGetCount", address(+[](int* count) { return *count = device_count, CUDA_SUCCESS; })},
        {"cuDeviceGet", address(+[](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; })},
        {"cuDeviceGetName", address(+[](char* text, int bytes, CUdevice) {
             std::snprintf(text, static_cast<std::size_t>(bytes), "host memory");
             return CUDA_SUCCESS;
         })},
        {"cuDeviceGetAttribute", address(+[](int* value, CUdevice_attribute attribute, CUdevice) {
             constexpr int host_numa_id = 134;
             *value = static_cast<int>(attribute) == host_numa_id ? -1 : 1;
             return CUDA_SUCCESS;
         })},
        {"cuDeviceCanAccessPeer", address(+[](int* can, CUdevice, CUdevice) { return *can = 1, CUDA_SUCCESS; })},
        {"cuDevicePrimaryCtxRetain", address(+[](CUcontext* out, CUdevice device) {
             *out = reinterpret_cast<CUcontext>(&contexts[device]);
             return CUDA_SUCCESS;
         })},
        {"cuDevicePrimaryCtxRelease", address(+[](CUdevice) { return CUDA_SUCCESS; })},
        {"cuCtxGetCurrent", address(+[](CUcontext* out) {
             *out = current.empty() ? nullptr : current.back();
             return CUDA_SUCCESS;
         })},
        {"cuCtxPushCurrent", address(+[](CUcontext pushed) { return current.push_back(pushed), CUDA_SUCCESS; })},
        {"cuCtxPopCurrent", address(+[](CUcontext* popped) {
             *popped = current.back();
             current.pop_back();
             return CUDA_SUCCESS;
         })},
        {"cuCtxSynchronize", address(+[]() { return result(machine().drain()); })},
        {"cuCtxGetDevice", address(cuCtxGetDevice)},
        {"cuCtxRecordEvent", address(ctx_record_event)},
        {"cuThreadExchangeStreamCaptureMode", address(+[](CUstreamCaptureMode*) { return CUDA_SUCCESS; })},
        {"cuMemGetAllocationGranularity", address(granularity)},
        {"cuMemGetInfo", address(+[](std::size_t* free_bytes, std::size_t* total_bytes) {
             DeviceMemory memory;
             const Status status = machine().memory(memory);
             *free_bytes = memory.free_bytes;
             *total_bytes = memory.total_bytes;
             return result(status);
         })},
        {"cuMemAddressReserve", address(reserve)},
        {"cuMemAddressFree", address(unreserve)},
        {"cuMemCreate", address(create)},
        {"cuMemRelease", address(release)},
        {"cuMemMap", address(map)},
        {"cuMemUnmap", address(unmap)},
        {"cuMemSetAccess", address(+[](CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc*, std::size_t) {
             return result(machine().allow_access(at, bytes));
         })},
        {"cuMemAlloc", address(cuMemAlloc_v2)},
        {"cuMemFree", address(cuMemFree_v2)},
        {"cuMemFreeAsync", address(cuMemFreeAsync)},
        {"cuMemHostRegister", address(host_register)},
        {"cuMemHostUnregister", address(+[](void* pages) { return result(machine().unpin_host(pages)); })},
        {"cuStreamCreate", address(+[](CUstream* out, unsigned) {
             StreamRef stream;
             const Status status = machine().open_stream(stream);
             *out = static_cast<CUstream>(stream.native());
             return result(status);
         })},
        {"cuStreamDestroy", address(stream_destroy)},
        {"cuStreamGetCtx", address(+[](CUstream, CUcontext* out) {
             *out = reinterpret_cast<CUcontext>(&contexts[current_device()]);
             return CUDA_SUCCESS;
         })},
        {"cuStreamWaitEvent", address(+[](CUstream stream, CUevent event, unsigned) {
             return result(machine().follow(stream_of(stream), event_of(event)));
         })},
        {"cuStreamIsCapturing", address(+[](CUstream stream, CUstreamCaptureStatus* status) {
             bool yes = false;
             const Status asked = machine().capturing(stream_of(stream), yes);
             *status = yes ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
             return result(asked);
         })},
        {"cuEventCreate", address(+[](CUevent* out, unsigned) {
             EventRef event;
             const Status status = machine().open_event({}, event);
             *out = static_cast<CUevent>(event.native());
             return result(status);
         })},
        {"cuEventDestroy", address(+[](CUevent event) { return result(machine().close_event(event_of(event))); })},
        {"cuEventRecord", address(+[](CUevent event, CUstream stream) {
             return result(machine().record(event_of(event), stream_of(stream)));
         })},
        {"cuEventQuery", address(+[](CUevent event) {
             bool passed = false;
             const Status status = machine().query(event_of(event), passed);
             return status.ok() && !passed ? CUDA_ERROR_NOT_READY : result(status);
         })},
        {"cuEventSynchronize", address(+[](CUevent event) { return result(machine().wait(event_of(event))); })},
        {"cuMemcpyDtoHAsync", address(copy_to_host)},
        {"cuMemcpyHtoDAsync", address(copy_to_device)},
        {"cuMemcpyDtoDAsync", address(+[](CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
             return result(machine().copy_peer(to, from, bytes, stream_of(stream)));
         })},
        {"cuMemsetD8Async", address(fill)},
    };
    for (const Entry& entry : entries) {
        if (std::strcmp(entry.name, name) == 0) return entry.function;
    }
    const std::string unused = // graphs, pools, modules, and pages for other processes
        " cuMemExportToShareableHandle cuMemImportFromShareableHandle cuStreamWaitValue32 "
        "cuMemHostGetDevicePointer cuModuleLoadData cuModuleUnload cuModuleGetFunction cuLaunchKernel "
        "cuStreamBeginCapture cuStreamEndCapture cuGraphDestroy cuGraphInstantiateWithFlags cuGraphLaunch "
        "cuGraphExecDestroy cuGraphExecUpdate cuDeviceGetDefaultMemPool cuDeviceGetGraphMemAttribute "
        "cuDeviceGraphMemTrim cuMemPoolGetAttribute cuMemPoolTrimTo ";
    if (unused.find(' ' + std::string{name} + ' ') != std::string::npos) {
        return address(+[]() { return CUDA_ERROR_NOT_SUPPORTED; });
    }
    return nullptr;
}

} // namespace

HOST_EXPORTED CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                           CUdriverProcAddressQueryResult*);
HOST_EXPORTED CUresult cuGetProcAddress(const char* name, void** function, int since, cuuint64_t) {
    *function = find(name);
    if (std::strcmp(name, "cuGetProcAddress") == 0) {
        *function = since >= 12000 ? address(cuGetProcAddress_v2) : address(cuGetProcAddress);
    }
    return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
HOST_EXPORTED CUresult cuGetProcAddress_v2(const char* name, void** function, int since, cuuint64_t flags,
                                           CUdriverProcAddressQueryResult*) {
    return cuGetProcAddress(name, function, since, flags);
}
