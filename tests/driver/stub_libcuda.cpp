// A libcuda.so.1 without a GPU, for the tests of CudaDriver: returns its entry points by name and version like the real
// one, records every call with the thread's state, and fails on request. Needs no toolkit: it uses the library's types,
// which tests/static/cuda_abi_test.cpp checks against <cuda.h>.
#include "stub_libcuda.hpp"

#include "memsaver/driver/cuda_abi.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace {

using namespace cuda_names;
namespace cuda = memsaver::detail::cuda;

using CUresult = cuda::Result;
using CUdevice = cuda::Device;
using CUdeviceptr = cuda::DevicePtr;
using CUpages = cuda::PageHandle;
using CUcontext = cuda::Context;
using CUstream = cuda::Stream;
using CUevent = cuda::Event;
using CUgraph = cuda::Graph;
using CUgraphExec = cuda::GraphExec;
using CUmemoryPool = cuda::MemPool;
using CUmodule = cuda::Module;
using CUfunction = cuda::Function;

StubState& state() {
    static StubState only;
    return only;
}

StubThread& thread() {
    thread_local StubThread mine;
    return mine;
}

// Contexts are addresses of these elements, with the device as index.
char context_of_device[16];

CUcontext context(int device) { return reinterpret_cast<CUcontext>(&context_of_device[device]); }

int device_of(void* context) {
    return context == nullptr ? -1 : static_cast<int>(static_cast<char*>(context) - context_of_device);
}

std::string hex(unsigned long long value) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", value);
    return text;
}

std::string hex(const void* value) {
    return hex(static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(value)));
}

/// The calling thread's, null if there is none.
CUcontext current() { return thread().contexts.empty() ? nullptr : static_cast<CUcontext>(thread().contexts.back()); }

/// Returns the result requested by the test.
CUresult planned(const char* name) {
    const auto fail = state().fails.find(name);
    return fail == state().fails.end() ? CUDA_SUCCESS : fail->second;
}

/// Records the call, too.
CUresult note(const char* name, const std::string& text = {}) {
    StubState& s = state();
    const std::lock_guard lock{s.mutex};
    s.calls.push_back({name, text, device_of(current()), thread().capture_mode});
    return planned(name);
}

std::string shown(unsigned long long address) { return hex(address); }
std::string shown(const void* pointer) { return hex(pointer); }
std::string shown(const char* text) { return text; }
std::string shown(const std::string& text) { return text; }
std::string shown(std::size_t bytes) { return std::to_string(bytes); }
std::string shown(int number) { return std::to_string(number); }
std::string shown(unsigned number) { return std::to_string(number); }

template <class... T>
std::string joined(const T&... values) {
    std::string text;
    ((text += (text.empty() ? "" : " ") + shown(values)), ...);
    return text;
}

template <class T, class V>
CUresult give(CUresult result, T* out, V value) {
    if (result != CUDA_SUCCESS) return result;
    if constexpr (std::is_pointer_v<T> && std::is_integral_v<V>)
        *out = reinterpret_cast<T>(std::uintptr_t{value});
    else
        *out = static_cast<T>(value);
    return result;
}

CUresult error_name(CUresult error, const char** name) {
    switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_DEINITIALIZED: *name = "CUDA_ERROR_DEINITIALIZED"; return CUDA_SUCCESS;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return CUDA_SUCCESS;
    default: *name = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
}
CUresult device_uuid(cuda::Uuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * device + i);
    return note("cuDeviceGetUuid");
}
CUresult device_attribute(int* value, int attribute, CUdevice) {
    const auto told = state().attributes.find(attribute);
    return give(note("cuDeviceGetAttribute"), value, told == state().attributes.end() ? 1 : told->second);
}
CUresult primary_retain(CUcontext* out, CUdevice device) {
    const CUresult result = note("cuDevicePrimaryCtxRetain");
    if (result == CUDA_SUCCESS) ++state().retained[device];
    return give(result, out, context(device));
}
CUresult primary_release(CUdevice device) {
    --state().retained[device];
    return note("cuDevicePrimaryCtxRelease");
}
CUresult ctx_push(CUcontext pushed) {
    const CUresult result = planned("cuCtxPushCurrent");
    if (result == CUDA_SUCCESS) thread().contexts.push_back(pushed);
    return result;
}
CUresult ctx_pop(CUcontext* popped) {
    if (thread().contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *popped = static_cast<CUcontext>(thread().contexts.back());
    thread().contexts.pop_back();
    return CUDA_SUCCESS;
}
CUresult exchange_mode(int* mode) {
    const CUresult result = planned("cuThreadExchangeStreamCaptureMode");
    if (result == CUDA_SUCCESS) std::swap(thread().capture_mode, *mode);
    return result;
}

std::string text_of(const cuda::AllocationProp& props) {
    return joined("device", props.location.id, "handles", int(props.handle_types), "rdma", int{props.rdma_capable});
}
CUresult set_access(CUdeviceptr at, std::size_t bytes, const cuda::AccessDesc* access, std::size_t count) {
    std::string text = std::to_string(bytes) + " at " + hex(at);
    text += count != 0 && access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? " to read for" : " for";
    for (std::size_t i = 0; i != count; ++i) {
        const bool usual =
            access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && access[i].flags == access[0].flags &&
            (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ || access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        text += (usual ? " " : " wrong ") + std::to_string(access[i].location.id);
    }
    return note("cuMemSetAccess", text);
}

// Streams and events are numbers; streams from 0x1000 on belong to device 1.
CUresult stream_create(CUstream* out, unsigned flags) {
    const CUresult result = note("cuStreamCreate", joined(flags));
    return result == CUDA_SUCCESS ? give(result, out, 0x100U * ++state().streams) : result;
}

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                    cuda::CopyAttributes* attributes, std::size_t* first, std::size_t kinds, CUstream stream) {
    const auto kind = [](const cuda::MemLocation& at) { return std::to_string(at.type) + ":" + std::to_string(at.id); };
    std::string text = joined(stream, "order", int{attributes->source_order}, kind(attributes->from), "to",
                              kind(attributes->to), "flags", attributes->flags, kinds, "at", *first);
    for (std::size_t i = 0; i < count; ++i) text += ", " + joined(to[i], from[i], bytes[i]);
    return note("cuMemcpyBatchAsync", text);
}

CUresult end_capture(CUstream stream, CUgraph* out) {
    *out = nullptr;
    return give(note("cuStreamEndCapture", hex(stream)), out, 0x300U);
}

const auto the_copy = reinterpret_cast<CUfunction>(std::uintptr_t{0x910});
const auto another = reinterpret_cast<CUfunction>(std::uintptr_t{0x920});
CUresult launch_kernel(CUfunction function, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                       unsigned, CUstream stream, void** arguments, void**) {
    const auto number = [&](int i) { return *static_cast<const unsigned long long*>(arguments[i]); };
    std::string text = joined(function, x, "x", threads, hex(stream) + ':', number(0), number(1));
    text += " " + std::to_string(number(2));
    if (function == the_copy) text += " " + joined(*static_cast<const unsigned*>(arguments[3])); // its last bytes
    return note("cuLaunchKernel", text);
}

struct Entry {
    const char* name;
    int version; ///< the CUDA version whose signature the function has
    void* function;
};

template <class F>
void* address(F* function) {
    return reinterpret_cast<void*>(function);
}

struct Name {
    char text[40]{};
    consteval Name(const char* from) { // NOLINT(google-explicit-constructor)
        for (char* to = text; *from != '\0';) *to++ = *from++;
    }
};

/// A function that only records its arguments.
template <Name name, class... P>
Entry noted(int version) {
    return {name.text, version, address(+[](P... arguments) { return note(name.text, joined(arguments...)); })};
}

const Entry* find(const char* wanted) {
    using Flags = unsigned long long;
    using Size = std::size_t;
// A function that records a text, and one that also gives a value in `out`.
#define NOTES(name, version, parameters, text) {name, version, address(+[] parameters { return note(name, text); })},
#define GIVES(name, version, parameters, text, out, value)                                                             \
    {name, version, address(+[] parameters { return give(note(name, text), out, value); })},
    static const Entry entries[] = {
        // clang-format off
        noted<"cuInit", unsigned>(2000),
        {"cuGetErrorName", 6000, address(error_name)},
        GIVES("cuDeviceGetCount", 2000, (int* out), "", out, state().devices)
        GIVES("cuDeviceGet", 2000, (CUdevice* out, int ordinal), "", out, ordinal)
        NOTES("cuDeviceGetName", 2000, (char* name, int bytes, CUdevice),
              (std::snprintf(name, static_cast<Size>(bytes), "Stub GPU"), ""))
        {"cuDeviceGetUuid", 11040, address(device_uuid)},
        {"cuDeviceGetAttribute", 2000, address(device_attribute)},
        GIVES("cuDeviceCanAccessPeer", 4000, (int* out, CUdevice device, CUdevice peer), joined(device, "to", peer),
              out, state().peers_can_access)
        {"cuDevicePrimaryCtxRetain", 7000, address(primary_retain)},
        {"cuDevicePrimaryCtxRelease", 11000, address(primary_release)},
        {"cuCtxGetCurrent", 4000, address(+[](CUcontext* out) -> CUresult { return *out = current(), CUDA_SUCCESS; })},
        {"cuCtxPushCurrent", 4000, address(ctx_push)},
        {"cuCtxPopCurrent", 4000, address(ctx_pop)},
        noted<"cuCtxSynchronize">(2000),
        NOTES("cuCtxRecordEvent", 12050, (CUcontext at, CUevent event), joined(device_of(at), event))
        {"cuThreadExchangeStreamCaptureMode", 10010, address(exchange_mode)},
        GIVES("cuMemGetAllocationGranularity", 10020, (Size* out, const cuda::AllocationProp* props, int which),
              text_of(*props), out, which == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? state().minimum : state().recommended)
        GIVES("cuMemGetInfo", 3020, (Size* out, Size* total), (*total = 2000, ""), out, 1000U)
        GIVES("cuMemAddressReserve", 10020, (CUdeviceptr* out, Size bytes, Size alignment, CUdeviceptr at, Flags flags),
              joined(bytes, "aligned", alignment), out, at == 0 && flags == 0 ? 0x700000000000ULL : 0ULL)
        noted<"cuMemAddressFree", CUdeviceptr, Size>(10020),
        GIVES("cuMemCreate", 10020, (CUpages* out, Size bytes, const cuda::AllocationProp* props, Flags),
              joined(bytes, text_of(*props)), out, 77U)
        noted<"cuMemRelease", CUpages>(10020),
        GIVES("cuMemExportToShareableHandle", 10020, (void* out, CUpages pages, int type, Flags flags),
              joined(std::to_string(pages), "as", type, "flags", std::to_string(flags)), static_cast<int*>(out), 55)
        GIVES("cuMemImportFromShareableHandle", 10020, (CUpages* out, void* from, int type),
              joined(std::to_string(reinterpret_cast<std::uintptr_t>(from)), "as", type), out, 78U)
        noted<"cuMemMap", CUdeviceptr, Size, Size, CUpages, unsigned long long>(10020),
        noted<"cuMemUnmap", CUdeviceptr, Size>(10020),
        {"cuMemSetAccess", 10020, address(set_access)},
        GIVES("cuMemAlloc", 3020, (CUdeviceptr* out, Size bytes), joined(bytes), out, 0x7000ULL)
        noted<"cuMemFree", CUdeviceptr>(3020),
        GIVES("cuCtxGetDevice", 2000, (CUdevice* out), "", out, device_of(current()))
        GIVES("cuDeviceGetDefaultMemPool", 11020, (CUmemoryPool* out, CUdevice device), joined(device), out, 0x500U)
        GIVES("cuMemPoolGetAttribute", 11020, (CUmemoryPool pool, int attribute, void* out), joined(pool, attribute),
              static_cast<Flags*>(out), 5000)
        noted<"cuMemPoolTrimTo", CUmemoryPool, Size>(11020),
        GIVES("cuDeviceGetGraphMemAttribute", 11040, (CUdevice device, int attribute, void* out),
              joined(device, attribute), static_cast<Flags*>(out), 6000)
        noted<"cuDeviceGraphMemTrim", CUdevice>(11040),
        noted<"cuMemHostRegister", void*, Size, unsigned>(6050),
        noted<"cuMemHostUnregister", void*>(4000),
        {"cuStreamCreate", 2000, address(stream_create)},
        noted<"cuStreamDestroy", CUstream>(4000),
        GIVES("cuStreamGetCtx", 9020, (CUstream stream, CUcontext* out), joined(stream), out,
              context(reinterpret_cast<std::uintptr_t>(stream) >= 0x1000))
        noted<"cuStreamWaitEvent", CUstream, CUevent, unsigned>(3020),
        GIVES("cuStreamIsCapturing", 10000, (CUstream stream, int* out), joined(stream), out, state().capture_status)
        GIVES("cuEventCreate", 2000, (CUevent* out, unsigned flags), joined(flags), out, 0x200U)
        noted<"cuEventDestroy", CUevent>(4000),
        noted<"cuEventRecord", CUevent, CUstream>(2000),
        noted<"cuEventQuery", CUevent>(2000),
        noted<"cuEventSynchronize", CUevent>(2000),
        noted<"cuMemcpyDtoHAsync", void*, CUdeviceptr, Size, CUstream>(3020),
        noted<"cuMemcpyHtoDAsync", CUdeviceptr, const void*, Size, CUstream>(3020),
        noted<"cuMemcpyDtoDAsync", CUdeviceptr, CUdeviceptr, Size, CUstream>(3020),
        {"cuMemcpyBatchAsync", 13000, address(copy_batch)},
        noted<"cuMemsetD8Async", CUdeviceptr, unsigned char, Size, CUstream>(3020),
        GIVES("cuModuleLoadData", 2000, (CUmodule* out, const void* image),
              std::strstr(static_cast<const char*>(image), ".visible .entry memsaver_copy(") != nullptr ? "the copy" : "something else", out,
              0x900U)
        noted<"cuModuleUnload", CUmodule>(2000),
        GIVES("cuModuleGetFunction", 2000, (CUfunction* out, CUmodule module, const char* name), joined(module, name),
              out, std::string_view{name} == "memsaver_copy" ? the_copy : another)
        noted<"cuFuncLoad", CUfunction>(12040),
        {"cuLaunchKernel", 4000, address(launch_kernel)},
        noted<"cuStreamBeginCapture", CUstream, int>(10010),
        {"cuStreamEndCapture", 10000, address(end_capture)},
        noted<"cuGraphDestroy", CUgraph>(10000),
        GIVES("cuGraphInstantiateWithFlags", 11040, (CUgraphExec* out, CUgraph graph, Flags flags),
              joined(graph, std::to_string(flags)), out, 0x400U)
        NOTES("cuGraphExecUpdate", 12000, (CUgraphExec graph, CUgraph recorded, cuda::GraphUpdateResult*), joined(graph, recorded))
        noted<"cuGraphLaunch", CUgraphExec, CUstream>(10000),
        noted<"cuGraphExecDestroy", CUgraphExec>(10000),
        // clang-format on
    };
#undef NOTES
#undef GIVES
    for (const Entry& entry : entries) {
        if (std::strcmp(entry.name, wanted) == 0) return &entry;
    }
    return nullptr;
}

} // namespace

extern "C" {

[[gnu::visibility("default")]] StubState* memsaver_stub_state() { return &state(); }
[[gnu::visibility("default")]] StubThread* memsaver_stub_thread() { return &thread(); }
/// For programs in C: sets the result of a call from now on; 0: it works again.
[[gnu::visibility("default")]] void memsaver_stub_fail(const char* name, int result) {
    const std::lock_guard lock{state().mutex};
    state().fails.erase(name);
    if (result != CUDA_SUCCESS) state().fails.emplace(name, result);
}

[[gnu::visibility("default")]] CUresult cuDriverGetVersion(int* version) {
    return give(note("cuDriverGetVersion"), version, state().version);
}

// Stricter than the real one: requires the exact version of a function's signature.
[[gnu::visibility("default")]] CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                                            unsigned long long flags, int*) {
    StubState& s = state();
    s.asked.emplace_back(name, version);
    s.flavours.push_back(flags);
    *function = nullptr;
    const Entry* entry = find(name);
    if (entry == nullptr || s.missing == name || version != entry->version || version > s.version) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *function = entry->function;
    return CUDA_SUCCESS;
}

} // extern "C"
