// The CUDA driver's entry points, loaded at run time. The only file that includes <cuda.h>, and only for its types:
// nothing here links against the driver. Knows how to find and name the calls, not what they are called for.
#pragma once

#include "memsaver/base/base.hpp"
#include "memsaver/driver/cuda_availability.hpp"
#include "memsaver/driver/cuda_options.hpp"
#include "memsaver/driver/cuda_status.hpp"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

// Translation units with and without the headers may meet in one program. So whatever exists in both forms
// (CudaDriver, with_default_driver) lives in an inline namespace that says which one it is, and nothing else asks.
#if defined(CUDA_VERSION) && CUDA_VERSION >= 12000
#define MEMSAVER_HAS_CUDA_HEADERS 1
#else
#define MEMSAVER_HAS_CUDA_HEADERS 0
#endif

#if MEMSAVER_HAS_CUDA_HEADERS

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// The driver's shared library, open for as long as this lives, and what was wrong with it.
class CudaLibrary {
public:
    static constexpr int oldest_version = 12000;

    /// Looks for `file` as dlopen does. A library that cannot be used is no exception: see `state()`.
    explicit CudaLibrary(const char* file) : file_{file} { open(); }

    CudaLibrary(const CudaLibrary&) = delete;
    CudaLibrary& operator=(const CudaLibrary&) = delete;
    ~CudaLibrary() {
        if (handle_ != nullptr) ::dlclose(handle_);
    }

    /// What becomes a pointer to a function of the type it is assigned to; null where there is none.
    struct Entry {
        void* address;

        template <class F>
        operator F*() const noexcept { // NOLINT(google-explicit-constructor): the conversion is the point
            return reinterpret_cast<F*>(address);
        }
    };

    /// The entry point `name` with the signature it had in CUDA `since` (12050 is 12.5). Names without a suffix and an
    /// explicit version, and the legacy default stream: so neither the headers' age nor a user's macros have a say.
    Entry entry(const char* name, int since) {
        Entry found = optional_entry(name, since);
        if (found.address == nullptr && state_) {
            fail(CudaProblem::missing_entry_point, "the CUDA driver (" + file_ + ", CUDA " + version_text(version_) +
                                                       ") lacks the entry point " + name + " of CUDA " +
                                                       version_text(since));
        }
        return found;
    }

    /// The same, of what a driver may lack.
    Entry optional_entry(const char* name, int since) noexcept {
        if (get_proc_address_ == nullptr) return {nullptr};
        void* address = nullptr;
        const CUresult result = get_proc_address_(name, &address, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr);
        return {result == CUDA_SUCCESS ? address : nullptr};
    }

    [[nodiscard]] const CudaAvailability& state() const noexcept { return state_; }

private:
    void open() {
        // Never unloaded: the driver has threads and exit handlers of its own, and Status keeps its names.
        handle_ = ::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle_ == nullptr) {
            const char* why = ::dlerror();
            return fail(CudaProblem::no_library, "no CUDA driver: " + (why != nullptr ? std::string{why} : file_));
        }
        // Its version first: a driver too old for this way of asking should be called old, not incomplete.
        CUresult (*driver_version)(int*) = symbol("cuDriverGetVersion");
        if (driver_version == nullptr) return;
        if (const CUresult result = driver_version(&version_); result != CUDA_SUCCESS) {
            return fail(CudaProblem::driver_failed,
                        "the CUDA driver does not tell its version: error " + std::to_string(result));
        }
        if (version_ < oldest_version) {
            return fail(CudaProblem::driver_too_old, "the CUDA driver is too old: it supports CUDA " +
                                                         version_text(version_) + ", memsaver needs " +
                                                         version_text(oldest_version) + " or newer");
        }
        get_proc_address_ = symbol("cuGetProcAddress_v2");
    }

    Entry symbol(const char* name) {
        Entry found{::dlsym(handle_, name)};
        if (found.address == nullptr) {
            fail(CudaProblem::missing_entry_point, "the CUDA driver (" + file_ + ") lacks the entry point " + name);
        }
        return found;
    }

    // The first problem is the one to tell: later ones follow from it.
    void fail(CudaProblem problem, std::string reason) {
        if (state_) state_ = CudaAvailability{problem, std::move(reason)};
    }

    static std::string version_text(int number) {
        return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
    }

    std::string file_;
    CudaAvailability state_;
    void* handle_ = nullptr;
    int version_ = 0;
    CUresult (*get_proc_address_)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*) = nullptr;
};

/// The table. Where `library.state()` is false some pointers are null and none may be called.
/// The members have names of their own because the headers redefine many of the driver's by macros.
struct CudaApi {
    explicit CudaApi(const char* file) : library{file} {}

    CudaLibrary library;

    using Result = CUresult;
    using Size = std::size_t;
    using Props = CUmemAllocationProp;
    using Pages = CUmemGenericAllocationHandle;
    using Granularity = CUmemAllocationGranularity_flags;

    Result (*init)(unsigned) = library.entry("cuInit", 2000);
    Result (*error_name)(Result, const char**) = library.entry("cuGetErrorName", 6000);
    Result (*device_count)(int*) = library.entry("cuDeviceGetCount", 2000);
    Result (*device_get)(CUdevice*, int) = library.entry("cuDeviceGet", 2000);
    Result (*device_name)(char*, int, CUdevice) = library.entry("cuDeviceGetName", 2000);
    Result (*device_attribute)(int*, CUdevice_attribute, CUdevice) = library.entry("cuDeviceGetAttribute", 2000);
    Result (*ctx_device)(CUdevice*) = library.entry("cuCtxGetDevice", 2000);
    Result (*can_access_peer)(int*, CUdevice, CUdevice) = library.entry("cuDeviceCanAccessPeer", 4000);

    Result (*primary_retain)(CUcontext*, CUdevice) = library.entry("cuDevicePrimaryCtxRetain", 7000);
    Result (*primary_release)(CUdevice) = library.entry("cuDevicePrimaryCtxRelease", 11000);
    Result (*ctx_push)(CUcontext) = library.entry("cuCtxPushCurrent", 4000);
    Result (*ctx_pop)(CUcontext*) = library.entry("cuCtxPopCurrent", 4000);
    Result (*ctx_synchronize)() = library.entry("cuCtxSynchronize", 2000);
    Result (*ctx_record_event)(CUcontext, CUevent) = library.optional_entry("cuCtxRecordEvent", 12050);
    Result (*exchange_capture_mode)(CUstreamCaptureMode*) = library.entry("cuThreadExchangeStreamCaptureMode", 10010);

    Result (*mem_granularity)(Size*, const Props*, Granularity) = library.entry("cuMemGetAllocationGranularity", 10020);
    Result (*mem_info)(Size*, Size*) = library.entry("cuMemGetInfo", 3020);
    Result (*mem_reserve)(CUdeviceptr*, Size, Size, CUdeviceptr,
                          unsigned long long) = library.entry("cuMemAddressReserve", 10020);
    Result (*mem_unreserve)(CUdeviceptr, Size) = library.entry("cuMemAddressFree", 10020);
    Result (*mem_create)(Pages*, Size, const Props*, unsigned long long) = library.entry("cuMemCreate", 10020);
    Result (*mem_release)(Pages) = library.entry("cuMemRelease", 10020);
    Result (*mem_map)(CUdeviceptr, Size, Size, Pages, unsigned long long) = library.entry("cuMemMap", 10020);
    Result (*mem_unmap)(CUdeviceptr, Size) = library.entry("cuMemUnmap", 10020);
    Result (*mem_set_access)(CUdeviceptr, Size, const CUmemAccessDesc*, Size) = library.entry("cuMemSetAccess", 10020);
    Result (*mem_alloc)(CUdeviceptr*, Size) = library.entry("cuMemAlloc", 3020);
    Result (*mem_free)(CUdeviceptr) = library.entry("cuMemFree", 3020);

    Result (*default_pool)(CUmemoryPool*, CUdevice) = library.entry("cuDeviceGetDefaultMemPool", 11020);
    Result (*pool_attribute)(CUmemoryPool, CUmemPool_attribute, void*) = library.entry("cuMemPoolGetAttribute", 11020);
    Result (*pool_trim)(CUmemoryPool, Size) = library.entry("cuMemPoolTrimTo", 11020);
    Result (*graph_memory)(CUdevice, CUgraphMem_attribute, void*) = library.entry("cuDeviceGetGraphMemAttribute",
                                                                                  11040);
    Result (*graph_memory_trim)(CUdevice) = library.entry("cuDeviceGraphMemTrim", 11040);

    Result (*host_register)(void*, Size, unsigned) = library.entry("cuMemHostRegister", 6050);
    Result (*host_unregister)(void*) = library.entry("cuMemHostUnregister", 4000);

    Result (*stream_create)(CUstream*, unsigned) = library.entry("cuStreamCreate", 2000);
    Result (*stream_destroy)(CUstream) = library.entry("cuStreamDestroy", 4000);
    Result (*stream_context)(CUstream, CUcontext*) = library.entry("cuStreamGetCtx", 9020);
    Result (*stream_wait_event)(CUstream, CUevent, unsigned) = library.entry("cuStreamWaitEvent", 3020);
    Result (*stream_capturing)(CUstream, CUstreamCaptureStatus*) = library.entry("cuStreamIsCapturing", 10000);
    Result (*event_create)(CUevent*, unsigned) = library.entry("cuEventCreate", 2000);
    Result (*event_destroy)(CUevent) = library.entry("cuEventDestroy", 4000);
    Result (*event_record)(CUevent, CUstream) = library.entry("cuEventRecord", 2000);
    Result (*event_query)(CUevent) = library.entry("cuEventQuery", 2000);
    Result (*event_wait)(CUevent) = library.entry("cuEventSynchronize", 2000);

    Result (*copy_to_host)(void*, CUdeviceptr, Size, CUstream) = library.entry("cuMemcpyDtoHAsync", 3020);
    Result (*copy_to_device)(CUdeviceptr, const void*, Size, CUstream) = library.entry("cuMemcpyHtoDAsync", 3020);
    Result (*fill)(CUdeviceptr, unsigned char, Size, CUstream) = library.entry("cuMemsetD8Async", 3020);

    Result (*begin_capture)(CUstream, CUstreamCaptureMode) = library.entry("cuStreamBeginCapture", 10010);
    Result (*end_capture)(CUstream, CUgraph*) = library.entry("cuStreamEndCapture", 10000);
    Result (*graph_destroy)(CUgraph) = library.entry("cuGraphDestroy", 10000);
    Result (*graph_instantiate)(CUgraphExec*, CUgraph,
                                unsigned long long) = library.entry("cuGraphInstantiateWithFlags", 11040);
    Result (*graph_exec_update)(CUgraphExec, CUgraph,
                                CUgraphExecUpdateResultInfo*) = library.optional_entry("cuGraphExecUpdate", 12000);
    Result (*graph_launch)(CUgraphExec, CUstream) = library.entry("cuGraphLaunch", 10000);
    Result (*graph_exec_destroy)(CUgraphExec) = library.entry("cuGraphExecDestroy", 10000);

    /// A driver's answer as the library speaks of it.
    [[nodiscard]] Status status(Result result) const noexcept {
        if (result == CUDA_SUCCESS) return {};
        const char* name = nullptr;
        const bool known = error_name(result, &name) == CUDA_SUCCESS && name != nullptr;
        const int code = static_cast<int>(result);
        return {cuda_status_kind(code), code, known ? name : "unknown CUDA error"};
    }
};

} // namespace memsaver::inline v0_1

#endif // MEMSAVER_HAS_CUDA_HEADERS
