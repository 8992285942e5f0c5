// A libcuda.so.1 whose devices are host memory, to test the preload library without a GPU. It has two devices of 1 GiB,
// and its functions are found as in the real one: by dlsym, and by cuGetProcAddress.
#undef CUDA_API_PER_THREAD_DEFAULT_STREAM // it would rename the definitions here
#include <cuda.h>

#include "memsaver/host/host_driver.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
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

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(&contexts[device]); }
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

StreamRef of(CUstream stream) { return StreamRef{reinterpret_cast<HostStream*>(stream)}; }
EventRef of(CUevent event) { return EventRef{reinterpret_cast<HostEvent*>(event)}; }

/// What a call of the machine returns in a reference: goes to the program's variable once it has been made.
template <class T, class To>
struct Into {
    ~Into() {
        if constexpr (std::is_pointer_v<To>)
            *to = static_cast<To>(value.native());
        else if constexpr (std::is_same_v<T, PageHandle>)
            *to = value.value;
        else
            *to = static_cast<To>(value);
    }
    operator T&() { return value; } // NOLINT(google-explicit-constructor)

    To* to;
    T value{};
};
template <class T, class To>
Into<T, To> into(To* program) {
    return Into<T, To>{program};
}

std::atomic<unsigned long> plain_calls{0};

} // namespace

#define HOST_EXPORTED extern "C" [[gnu::visibility("default")]]

HOST_EXPORTED unsigned long host_libcuda_plain_calls() { return plain_calls; }

HOST_EXPORTED CUresult cuDriverGetVersion(int* told) { return *told = 13000, CUDA_SUCCESS; }
HOST_EXPORTED CUresult cuCtxGetDevice(CUdevice* device) { return *device = current_device(), CUDA_SUCCESS; }
HOST_EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
    ++plain_calls;
    return result(machine().allocate_plain(bytes, into<Address>(out)));
}
HOST_EXPORTED CUresult cuMemFree_v2(CUdeviceptr at) { return result(machine().free_plain(at)); }
HOST_EXPORTED CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) { return result(machine().free_plain(at)); }

namespace {

struct Entry {
    const char* name;
    void* function;
};

template <class F>
void* address(F* function) {
    return reinterpret_cast<void*>(function);
}

void* find(const char* name) {
    using Ptr = CUdeviceptr;
    using Pages = CUmemGenericAllocationHandle;
    using Props = const CUmemAllocationProp*;
    using Flags = unsigned long long;
    using Size = std::size_t;
// An entry point that makes a call of the machine, and one that has an effect here.
#define MAKES(name, parameters, call) {name, address(+[] parameters { return result(machine().call); })},
#define DOES(name, parameters, ...) {name, address(+[] parameters { return __VA_ARGS__, CUDA_SUCCESS; })},
    static const Entry entries[] = {
        // clang-format off
        DOES("cuInit", (unsigned), void())
        DOES("cuGetErrorName", (CUresult error, const char** text),
             *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE")
        DOES("cuDeviceGetCount", (int* count), *count = device_count)
        DOES("cuDeviceGet", (CUdevice* device, int ordinal), *device = ordinal)
        DOES("cuDeviceGetName", (char* text, int bytes, CUdevice),
             std::snprintf(text, static_cast<Size>(bytes), "host memory"))
        DOES("cuDeviceGetAttribute", (int* value, int attribute, CUdevice), *value = attribute == 134 ? -1 : 1) // NUMA
        DOES("cuDeviceCanAccessPeer", (int* can, CUdevice, CUdevice), *can = 1)
        DOES("cuDevicePrimaryCtxRetain", (CUcontext* out, CUdevice device), *out = context_of(device))
        DOES("cuDevicePrimaryCtxRelease", (CUdevice), void())
        DOES("cuCtxGetCurrent", (CUcontext* out), *out = current.empty() ? nullptr : current.back())
        DOES("cuCtxPushCurrent", (CUcontext pushed), current.push_back(pushed))
        DOES("cuCtxPopCurrent", (CUcontext* popped), *popped = current.back(), current.pop_back())
        {"cuCtxGetDevice", address(cuCtxGetDevice)},
        DOES("cuStreamGetCtx", (CUstream, CUcontext* out), *out = context_of(current_device()))
        DOES("cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode*), void())
        MAKES("cuCtxSynchronize", (), drain())
        MAKES("cuCtxRecordEvent", (CUcontext, CUevent event), record_device(of(event)))
        MAKES("cuMemGetAllocationGranularity", (Size* bytes, Props, int), granularity(*bytes))
        {"cuMemGetInfo", address(+[](Size* free_bytes, Size* total_bytes) {
             DeviceMemory memory;
             const Status status = machine().memory(memory);
             *free_bytes = memory.free_bytes;
             *total_bytes = memory.total_bytes;
             return result(status);
         })},
        MAKES("cuMemAddressReserve", (Ptr* out, Size bytes, Size alignment, Ptr, Flags),
              reserve(bytes, alignment, into<Address>(out)))
        MAKES("cuMemAddressFree", (Ptr at, Size bytes), unreserve(at, bytes))
        MAKES("cuMemCreate", (Pages* out, Size bytes, Props, Flags), create(bytes, into<PageHandle>(out)))
        MAKES("cuMemRelease", (Pages handle), release({handle}))
        MAKES("cuMemMap", (Ptr at, Size bytes, Size, Pages handle, Flags), map(at, bytes, {handle}))
        MAKES("cuMemUnmap", (Ptr at, Size bytes), unmap(at, bytes))
        MAKES("cuMemSetAccess", (Ptr at, Size bytes, const CUmemAccessDesc*, Size), allow_access(at, bytes))
        {"cuMemAlloc", address(cuMemAlloc_v2)},
        {"cuMemFree", address(cuMemFree_v2)},
        {"cuMemFreeAsync", address(cuMemFreeAsync)},
        MAKES("cuMemHostRegister", (void* pages, Size bytes, unsigned), pin_host(pages, bytes))
        MAKES("cuMemHostUnregister", (void* pages), unpin_host(pages))
        MAKES("cuStreamCreate", (CUstream* out, unsigned), open_stream(into<StreamRef>(out)))
        MAKES("cuStreamDestroy", (CUstream stream), close_stream(of(stream)))
        MAKES("cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned), follow(of(stream), of(event)))
        MAKES("cuStreamIsCapturing", (CUstream stream, int* active), capturing(of(stream), into<bool>(active)))
        MAKES("cuEventCreate", (CUevent* out, unsigned), open_event({}, into<EventRef>(out)))
        MAKES("cuEventDestroy", (CUevent event), close_event(of(event)))
        MAKES("cuEventRecord", (CUevent event, CUstream stream), record(of(event), of(stream)))
        {"cuEventQuery", address(+[](CUevent event) {
             bool passed = false;
             const Status status = machine().query(of(event), passed);
             return status.ok() && !passed ? CUDA_ERROR_NOT_READY : result(status);
         })},
        MAKES("cuEventSynchronize", (CUevent event), wait(of(event)))
        MAKES("cuMemcpyDtoHAsync", (void* host, Ptr from, Size bytes, CUstream stream),
              copy_to_host(host, from, bytes, of(stream)))
        MAKES("cuMemcpyHtoDAsync", (Ptr to, const void* host, Size bytes, CUstream stream),
              copy_to_device(to, host, bytes, of(stream)))
        MAKES("cuMemcpyDtoDAsync", (Ptr to, Ptr from, Size bytes, CUstream stream),
              copy_peer(to, from, bytes, of(stream)))
        MAKES("cuMemsetD8Async", (Ptr to, unsigned char byte, Size bytes, CUstream stream),
              fill(to, byte, bytes, of(stream)))
        // clang-format on
    };
#undef MAKES
#undef DOES
    for (const Entry& entry : entries) {
        if (std::strcmp(entry.name, name) == 0) return entry.function;
    }
    const std::string unused = // graphs, pools, modules, and pages for other processes
        " cuMemExportToShareableHandle cuMemImportFromShareableHandle "
        "cuModuleLoadData cuModuleUnload cuModuleGetFunction cuLaunchKernel "
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
