// The CUDA driver's entry points, loaded at run time, and the thread state that they need. Needs no toolkit and links
// against nothing. Knows how to find and name the calls, not how they are used.
#pragma once

#include "memsaver/core/status.hpp"
#include "memsaver/core/text.hpp"
#include "memsaver/driver/cuda_abi.hpp"
#include "memsaver/driver/cuda_options.hpp"
#include "memsaver/driver/entry_point.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Maps a CUDA result to a StatusKind. `gone` covers the results after which, according to the manual, further CUDA
/// work of the process also fails, and those that report the context or the driver itself as gone. A result that may
/// change with time or with another argument is `other`.
constexpr StatusKind cuda_status_kind(int code) noexcept {
    switch (code) {
    case 0: return StatusKind::ok;
    case 2: return StatusKind::out_of_memory;
    case 3:   // NOT_INITIALIZED: it was initialized, so this is a forked child, where no handle of the parent works
    case 4:   // DEINITIALIZED: the process is exiting
    case 46:  // DEVICE_UNAVAILABLE
    case 201: // INVALID_CONTEXT: it was valid, so someone reset the device
    case 214: // ECC_UNCORRECTABLE
    case 220: // NVLINK_UNCORRECTABLE
    case 226: // CONTAINED
    case 700: // ILLEGAL_ADDRESS
    case 702: // LAUNCH_TIMEOUT
    case 709: // CONTEXT_IS_DESTROYED
    case 710: // ASSERT
    case 714: // HARDWARE_STACK_ERROR
    case 715: // ILLEGAL_INSTRUCTION
    case 716: // MISALIGNED_ADDRESS
    case 717: // INVALID_ADDRESS_SPACE
    case 718: // INVALID_PC
    case 719: // LAUNCH_FAILED
    case 721: // TENSOR_MEMORY_LEAK
    case 802: // SYSTEM_NOT_READY
    case 805: // MPS_CONNECTION_FAILED
    case 806: // MPS_RPC_FAILURE
    case 810: // MPS_CLIENT_TERMINATED
    case 911: // EXTERNAL_DEVICE
        return StatusKind::gone;
    default: return StatusKind::other;
    }
}

/// The driver's shared library, open as long as this object lives, and the reason why it cannot be used, if any.
class CudaLibrary {
public:
    static constexpr int oldest_version = 12000;

    /// Finds `file` as dlopen does. A library that cannot be used is not an exception: see `state()`.
    explicit CudaLibrary(const char* file) : file_{file} { open(); }

    CudaLibrary& operator=(CudaLibrary&&) = delete;
    ~CudaLibrary() {
        if (handle_ != nullptr) ::dlclose(handle_);
    }

    /// The entry point `name` with the signature it had in CUDA `since` (12050 is 12.5). Names have no suffix, the
    /// version is explicit, and the default stream is the legacy one, so that neither the age of headers nor user
    /// macros matter.
    EntryPoint entry(const char* name, int since) {
        EntryPoint found = optional_entry(name, since);
        if (found.address == nullptr && state_) {
            fail(CudaProblem::missing_entry_point,
                 text_of({"the CUDA driver (", file_, ", CUDA ", version_text(version_), ") lacks the entry point ",
                          name, " of CUDA ", version_text(since)}));
        }
        return found;
    }

    /// The same, for an entry point that a driver may lack.
    EntryPoint optional_entry(const char* name, int since) noexcept {
        if (get_proc_address_ == nullptr || since > version_) return {}; // or its signature differs
        void* address = nullptr;
        const cuda::Result result = get_proc_address_(name, &address, since, cuda::legacy_stream, nullptr);
        return EntryPoint{result == cuda::success ? address : nullptr};
    }

    [[nodiscard]] const CudaAvailability& state() const noexcept { return state_; }

private:
    void open() {
        // Never unloaded: the driver has threads and exit handlers of its own, and Status keeps its names.
        handle_ = ::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle_ == nullptr) {
            const char* why = ::dlerror();
            return fail(CudaProblem::no_library, text_of({"no CUDA driver: ", why != nullptr ? Bit{why} : Bit{file_}}));
        }
        // Query the version first: a driver too old for this lookup should be reported as old, not as incomplete.
        cuda::Result (*driver_version)(int*) = symbol("cuDriverGetVersion");
        if (driver_version == nullptr) return;
        if (const cuda::Result result = driver_version(&version_); result != cuda::success) {
            return fail(CudaProblem::driver_failed,
                        text_of({"the version of the CUDA driver could not be queried: error ", in_digits(result)}));
        }
        if (version_ < oldest_version) {
            return fail(CudaProblem::driver_too_old,
                        text_of({"the CUDA driver is too old: it supports CUDA ", version_text(version_),
                                 ", memsaver needs ", version_text(oldest_version), " or newer"}));
        }
        get_proc_address_ = symbol("cuGetProcAddress_v2");
    }

    EntryPoint symbol(const char* name) {
        const EntryPoint found{handle_, name};
        if (found.address == nullptr) {
            fail(CudaProblem::missing_entry_point,
                 text_of({"the CUDA driver (", file_, ") lacks the entry point ", name}));
        }
        return found;
    }

    // Keeps the first problem only: later ones follow from it.
    void fail(CudaProblem problem, std::string reason) {
        if (state_) state_ = CudaAvailability{problem, std::move(reason)};
    }

    static std::string version_text(int number) {
        return text_of({in_digits(number / 1000), ".", in_digits(number % 1000 / 10)});
    }

    std::string file_;
    CudaAvailability state_;
    void* handle_ = nullptr;
    int version_ = 0;
    cuda::Result (*get_proc_address_)(const char*, void**, int, unsigned long long, int*) = nullptr;
};

/// The table of entry points. If `library.state()` is false, some pointers are null and none may be called. The members
/// have their own names because the CUDA headers redefine many of the driver's names by macros.
struct CudaApi {
    explicit CudaApi(const char* file) : library{file} {}

    CudaLibrary library;

    using Result = cuda::Result;
    using Size = std::size_t;
    using Props = cuda::AllocationProp;
    using Pages = cuda::PageHandle;
    using Granularity = int;

    Result (*init)(unsigned) = library.entry("cuInit", 2000);
    Result (*error_name)(Result, const char**) = library.entry("cuGetErrorName", 6000);
    Result (*device_count)(int*) = library.entry("cuDeviceGetCount", 2000);
    Result (*device_get)(cuda::Device*, int) = library.entry("cuDeviceGet", 2000);
    Result (*device_name)(char*, int, cuda::Device) = library.entry("cuDeviceGetName", 2000);
    Result (*device_attribute)(int*, int, cuda::Device) = library.entry("cuDeviceGetAttribute", 2000);
    Result (*device_uuid)(cuda::Uuid*, cuda::Device) = library.optional_entry("cuDeviceGetUuid", 11040);
    Result (*ctx_device)(cuda::Device*) = library.entry("cuCtxGetDevice", 2000);
    Result (*can_access_peer)(int*, cuda::Device, cuda::Device) = library.entry("cuDeviceCanAccessPeer", 4000);

    Result (*primary_retain)(cuda::Context*, cuda::Device) = library.entry("cuDevicePrimaryCtxRetain", 7000);
    Result (*primary_release)(cuda::Device) = library.entry("cuDevicePrimaryCtxRelease", 11000);
    Result (*ctx_get)(cuda::Context*) = library.entry("cuCtxGetCurrent", 4000);
    Result (*ctx_push)(cuda::Context) = library.entry("cuCtxPushCurrent", 4000);
    Result (*ctx_pop)(cuda::Context*) = library.entry("cuCtxPopCurrent", 4000);
    Result (*ctx_synchronize)() = library.entry("cuCtxSynchronize", 2000);
    Result (*ctx_record_event)(cuda::Context, cuda::Event) = library.optional_entry("cuCtxRecordEvent", 12050);
    Result (*exchange_capture_mode)(int*) = library.entry("cuThreadExchangeStreamCaptureMode", 10010);

    Result (*mem_granularity)(Size*, const Props*, Granularity) = library.entry("cuMemGetAllocationGranularity", 10020);
    Result (*mem_info)(Size*, Size*) = library.entry("cuMemGetInfo", 3020);
    Result (*mem_reserve)(cuda::DevicePtr*, Size, Size, cuda::DevicePtr,
                          unsigned long long) = library.entry("cuMemAddressReserve", 10020);
    Result (*mem_unreserve)(cuda::DevicePtr, Size) = library.entry("cuMemAddressFree", 10020);
    Result (*mem_create)(Pages*, Size, const Props*, unsigned long long) = library.entry("cuMemCreate", 10020);
    Result (*mem_release)(Pages) = library.entry("cuMemRelease", 10020);
    Result (*mem_export)(void*, Pages, int, unsigned long long) = library.entry("cuMemExportToShareableHandle", 10020);
    Result (*mem_import)(Pages*, void*, int) = library.entry("cuMemImportFromShareableHandle", 10020);
    Result (*mem_map)(cuda::DevicePtr, Size, Size, Pages, unsigned long long) = library.entry("cuMemMap", 10020);
    Result (*mem_unmap)(cuda::DevicePtr, Size) = library.entry("cuMemUnmap", 10020);
    Result (*mem_set_access)(cuda::DevicePtr, Size, const cuda::AccessDesc*, Size) = library.entry("cuMemSetAccess",
                                                                                                   10020);
    Result (*mem_alloc)(cuda::DevicePtr*, Size) = library.entry("cuMemAlloc", 3020);
    Result (*mem_free)(cuda::DevicePtr) = library.entry("cuMemFree", 3020);

    Result (*default_pool)(cuda::MemPool*, cuda::Device) = library.entry("cuDeviceGetDefaultMemPool", 11020);
    Result (*pool_attribute)(cuda::MemPool, int, void*) = library.entry("cuMemPoolGetAttribute", 11020);
    Result (*pool_trim)(cuda::MemPool, Size) = library.entry("cuMemPoolTrimTo", 11020);
    Result (*graph_memory)(cuda::Device, int, void*) = library.entry("cuDeviceGetGraphMemAttribute", 11040);
    Result (*graph_memory_trim)(cuda::Device) = library.entry("cuDeviceGraphMemTrim", 11040);

    Result (*host_register)(void*, Size, unsigned) = library.entry("cuMemHostRegister", 6050);
    Result (*host_unregister)(void*) = library.entry("cuMemHostUnregister", 4000);

    Result (*stream_create)(cuda::Stream*, unsigned) = library.entry("cuStreamCreate", 2000);
    Result (*stream_destroy)(cuda::Stream) = library.entry("cuStreamDestroy", 4000);
    Result (*stream_context)(cuda::Stream, cuda::Context*) = library.entry("cuStreamGetCtx", 9020);
    Result (*stream_wait_event)(cuda::Stream, cuda::Event, unsigned) = library.entry("cuStreamWaitEvent", 3020);
    Result (*stream_capturing)(cuda::Stream, int*) = library.entry("cuStreamIsCapturing", 10000);
    Result (*event_create)(cuda::Event*, unsigned) = library.entry("cuEventCreate", 2000);
    Result (*event_destroy)(cuda::Event) = library.entry("cuEventDestroy", 4000);
    Result (*event_record)(cuda::Event, cuda::Stream) = library.entry("cuEventRecord", 2000);
    Result (*event_query)(cuda::Event) = library.entry("cuEventQuery", 2000);
    Result (*event_wait)(cuda::Event) = library.entry("cuEventSynchronize", 2000);

    Result (*copy_to_host)(void*, cuda::DevicePtr, Size, cuda::Stream) = library.entry("cuMemcpyDtoHAsync", 3020);
    Result (*copy_to_device)(cuda::DevicePtr, const void*, Size, cuda::Stream) = library.entry("cuMemcpyHtoDAsync",
                                                                                               3020);
    Result (*copy_on_devices)(cuda::DevicePtr, cuda::DevicePtr, Size, cuda::Stream) = library.entry("cuMemcpyDtoDAsync",
                                                                                                    3020);
    Result (*copy_batch)(cuda::DevicePtr*, cuda::DevicePtr*, Size*, Size, cuda::CopyAttributes*, Size*, Size,
                         cuda::Stream) = library.optional_entry("cuMemcpyBatchAsync", 13000);
    Result (*fill)(cuda::DevicePtr, unsigned char, Size, cuda::Stream) = library.entry("cuMemsetD8Async", 3020);

    Result (*module_load)(cuda::Module*, const void*) = library.entry("cuModuleLoadData", 2000);
    Result (*module_unload)(cuda::Module) = library.entry("cuModuleUnload", 2000);
    Result (*module_function)(cuda::Function*, cuda::Module, const char*) = library.entry("cuModuleGetFunction", 2000);
    Result (*function_load)(cuda::Function) = library.optional_entry("cuFuncLoad", 12040);
    Result (*launch_kernel)(cuda::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            cuda::Stream, void**, void**) = library.entry("cuLaunchKernel", 4000);

    Result (*begin_capture)(cuda::Stream, int) = library.entry("cuStreamBeginCapture", 10010);
    Result (*end_capture)(cuda::Stream, cuda::Graph*) = library.entry("cuStreamEndCapture", 10000);
    Result (*graph_destroy)(cuda::Graph) = library.entry("cuGraphDestroy", 10000);
    Result (*graph_instantiate)(cuda::GraphExec*, cuda::Graph,
                                unsigned long long) = library.entry("cuGraphInstantiateWithFlags", 11040);
    Result (*graph_exec_update)(cuda::GraphExec, cuda::Graph,
                                cuda::GraphUpdateResult*) = library.optional_entry("cuGraphExecUpdate", 12000);
    Result (*graph_launch)(cuda::GraphExec, cuda::Stream) = library.entry("cuGraphLaunch", 10000);
    Result (*graph_exec_destroy)(cuda::GraphExec) = library.entry("cuGraphExecDestroy", 10000);

    [[nodiscard]] Status status(Result result) const noexcept {
        if (result == cuda::success) return {};
        const char* name = nullptr;
        const bool known = error_name(result, &name) == cuda::success && name != nullptr;
        const int code = static_cast<int>(result);
        return {cuda_status_kind(code), code, known ? name : "unknown CUDA error"};
    }
};

inline cuda::Stream native(StreamRef stream) noexcept { return static_cast<cuda::Stream>(stream.native()); }

inline cuda::Event native(EventRef event) noexcept { return static_cast<cuda::Event>(event.native()); }

inline cuda::MemPool native(PoolRef pool) noexcept { return static_cast<cuda::MemPool>(pool.native()); }

inline cuda::GraphExec native(GraphRef graph) noexcept { return static_cast<cuda::GraphExec>(graph.native); }

static_assert(static_cast<int>(CaptureMode::thread_local_) == cuda::capture_thread_local &&
              static_cast<int>(CaptureMode::relaxed) == cuda::capture_relaxed);
inline int native(CaptureMode mode) noexcept { return static_cast<int>(mode); }

/// Sets up the thread for driver calls: makes the context current, if it is not, and relaxes the capture mode. Restores
/// both on destruction. Scopes nest. Check `result()` before calling anything.
class [[nodiscard]] CudaScope {
public:
    CudaScope(const CudaApi& api, cuda::Context context) noexcept : api_{api} {
        // With eight threads at once, to push and to pop takes sixty times as long as to ask (decision 32).
        cuda::Context current = nullptr;
        if (api.ctx_get(&current) != cuda::success || current != context) {
            result_ = api.ctx_push(context);
            pushed_ = result_ == cuda::success;
        }
        if (result_ == cuda::success) result_ = api.exchange_capture_mode(&mode_);
        exchanged_ = result_ == cuda::success;
    }
    CudaScope& operator=(CudaScope&&) = delete;
    ~CudaScope() {
        if (exchanged_) api_.exchange_capture_mode(&mode_);
        cuda::Context ours = nullptr;
        if (pushed_) api_.ctx_pop(&ours);
    }

    [[nodiscard]] cuda::Result result() const noexcept { return result_; }

private:
    const CudaApi& api_;
    int mode_ = cuda::capture_relaxed; // after the exchange: the thread's previous mode
    bool pushed_ = false;
    bool exchanged_ = false;
    cuda::Result result_ = cuda::success;
};

} // namespace memsaver::inline v0_3::detail
