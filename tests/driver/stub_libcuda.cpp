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

/// Records the call, and returns the result requested by the test.
CUresult note(const char* name, const std::string& text = {}) {
    StubState& s = state();
    const std::lock_guard lock{s.mutex};
    void* const current = thread().contexts.empty() ? nullptr : thread().contexts.back();
    s.calls.push_back({name, text, device_of(current), thread().capture_mode});
    const auto fail = s.fails.find(name);
    return fail == s.fails.end() ? CUDA_SUCCESS : fail->second;
}

std::string shown(unsigned long long address) { return hex(address); }
std::string shown(const void* pointer) { return hex(pointer); }
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
CUresult device_count(int* count) { return give(note("cuDeviceGetCount"), count, state().devices); }
CUresult device_get(CUdevice* device, int ordinal) { return give(note("cuDeviceGet"), device, ordinal); }
CUresult device_name(char* name, int bytes, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(bytes), "Stub GPU");
    return note("cuDeviceGetName");
}
CUresult device_uuid(memsaver::detail::cuda::Uuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * device + i);
    return note("cuDeviceGetUuid");
}
CUresult device_attribute(int* value, int attribute, CUdevice) {
    const auto told = state().attributes.find(attribute);
    return give(note("cuDeviceGetAttribute"), value, told == state().attributes.end() ? 1 : told->second);
}
CUresult can_access_peer(int* can, CUdevice device, CUdevice peer) {
    const std::string text = std::to_string(device) + " to " + std::to_string(peer);
    return give(note("cuDeviceCanAccessPeer", text), can, state().peers_can_access);
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
CUresult ctx_get(CUcontext* current) {
    *current = thread().contexts.empty() ? nullptr : static_cast<CUcontext>(thread().contexts.back());
    return CUDA_SUCCESS;
}
CUresult ctx_push(CUcontext pushed) {
    const auto fail = state().fails.find("cuCtxPushCurrent");
    if (fail != state().fails.end()) return fail->second;
    thread().contexts.push_back(pushed);
    return CUDA_SUCCESS;
}
CUresult ctx_pop(CUcontext* popped) {
    if (thread().contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *popped = static_cast<CUcontext>(thread().contexts.back());
    thread().contexts.pop_back();
    return CUDA_SUCCESS;
}
CUresult exchange_mode(int* mode) {
    const auto fail = state().fails.find("cuThreadExchangeStreamCaptureMode");
    if (fail != state().fails.end()) return fail->second;
    const int before = thread().capture_mode;
    thread().capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
CUresult ctx_record_event(CUcontext at, CUevent event) {
    return note("cuCtxRecordEvent", std::to_string(device_of(at)) + " " + hex(event));
}

std::string text_of(const cuda::AllocationProp& props) {
    return "device " + std::to_string(props.location.id) + " handles " + std::to_string(props.handle_types) + " rdma " +
           std::to_string(int{props.rdma_capable});
}
CUresult granularity(std::size_t* bytes, const cuda::AllocationProp* props, int which) {
    return give(note("cuMemGetAllocationGranularity", text_of(*props)), bytes,
                which == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? state().minimum : state().recommended);
}
CUresult mem_info(std::size_t* free_bytes, std::size_t* total_bytes) {
    *total_bytes = 2000;
    return give(note("cuMemGetInfo"), free_bytes, 1000U);
}
CUresult reserve(CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr at, unsigned long long flags) {
    const std::string text = std::to_string(bytes) + " aligned " + std::to_string(alignment);
    return give(note("cuMemAddressReserve", text), out, at == 0 && flags == 0 ? 0x700000000000ULL : 0ULL);
}
CUresult create(CUpages* out, std::size_t bytes, const cuda::AllocationProp* props, unsigned long long) {
    return give(note("cuMemCreate", std::to_string(bytes) + " " + text_of(*props)), out, 77U);
}
CUresult export_pages(void* out, CUpages handle, int type, unsigned long long flags) {
    const std::string text = std::to_string(handle) + " as " + std::to_string(type) + " flags " + std::to_string(flags);
    return give(note("cuMemExportToShareableHandle", text), static_cast<int*>(out), 55);
}
CUresult import_pages(CUpages* out, void* from, int type) {
    const std::string text = std::to_string(reinterpret_cast<std::uintptr_t>(from)) + " as " + std::to_string(type);
    return give(note("cuMemImportFromShareableHandle", text), out, 78U);
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
CUresult alloc(CUdeviceptr* out, std::size_t bytes) {
    return give(note("cuMemAlloc", std::to_string(bytes)), out, 0x7000ULL);
}
CUresult ctx_device(CUdevice* device) {
    *device = thread().contexts.empty() ? -1 : device_of(static_cast<CUcontext>(thread().contexts.back()));
    return note("cuCtxGetDevice");
}
CUresult default_pool(CUmemoryPool* pool, CUdevice device) {
    return give(note("cuDeviceGetDefaultMemPool", joined(device)), pool, 0x500U);
}
CUresult pool_attribute(CUmemoryPool pool, int attribute, void* value) {
    return give(note("cuMemPoolGetAttribute", joined(pool, attribute)), static_cast<unsigned long long*>(value), 5000);
}
CUresult graph_memory(CUdevice device, int attribute, void* value) {
    const CUresult result = note("cuDeviceGetGraphMemAttribute", joined(device, attribute));
    return give(result, static_cast<unsigned long long*>(value), 6000);
}

// Streams and events are numbers; streams from 0x1000 on belong to device 1.
CUresult stream_create(CUstream* out, unsigned flags) {
    const CUresult result = note("cuStreamCreate", std::to_string(flags));
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUstream>(std::uintptr_t{0x100} * ++state().streams);
    return result;
}
CUresult stream_context(CUstream stream, CUcontext* out) {
    return give(note("cuStreamGetCtx", hex(stream)), out, context(reinterpret_cast<std::uintptr_t>(stream) >= 0x1000));
}
CUresult stream_capturing(CUstream stream, int* status) {
    return give(note("cuStreamIsCapturing", hex(stream)), status, state().capture_status);
}
CUresult event_create(CUevent* out, unsigned flags) { return give(note("cuEventCreate", joined(flags)), out, 0x200U); }

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                    cuda::CopyAttributes* attributes, std::size_t* first, std::size_t kinds, CUstream stream) {
    const auto kind = [](const cuda::MemLocation& at) { return std::to_string(at.type) + ":" + std::to_string(at.id); };
    std::string text = hex(stream) + " order " + std::to_string(attributes->source_order) + " " +
                       kind(attributes->from) + " to " + kind(attributes->to) + " flags " +
                       std::to_string(attributes->flags) + " " + std::to_string(kinds) + " at " +
                       std::to_string(*first);
    for (std::size_t i = 0; i < count; ++i)
        text += ", " + hex(to[i]) + " " + hex(from[i]) + " " + std::to_string(bytes[i]);
    return note("cuMemcpyBatchAsync", text);
}

CUresult end_capture(CUstream stream, CUgraph* out) {
    *out = nullptr;
    return give(note("cuStreamEndCapture", hex(stream)), out, 0x300U);
}
CUresult graph_instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
    return give(note("cuGraphInstantiateWithFlags", hex(graph) + " " + std::to_string(flags)), out, 0x400U);
}
CUresult graph_exec_update(CUgraphExec graph, CUgraph recorded, cuda::GraphUpdateResult*) {
    return note("cuGraphExecUpdate", hex(graph) + " " + hex(recorded));
}

const auto the_copy = reinterpret_cast<CUfunction>(std::uintptr_t{0x910});
const auto another = reinterpret_cast<CUfunction>(std::uintptr_t{0x920});
CUresult module_load(CUmodule* module, const void* image) {
    const bool ptx = std::strstr(static_cast<const char*>(image), ".visible .entry memsaver_copy(") != nullptr;
    return give(note("cuModuleLoadData", ptx ? "the copy" : "something else"), module, 0x900U);
}
CUresult module_function(CUfunction* function, CUmodule module, const char* name) {
    const bool copies = std::string_view{name} == "memsaver_copy";
    return give(note("cuModuleGetFunction", hex(module) + " " + name), function, copies ? the_copy : another);
}
CUresult launch_kernel(CUfunction function, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                       unsigned, CUstream stream, void** arguments, void**) {
    const auto number = [&](int i) { return *static_cast<const unsigned long long*>(arguments[i]); };
    const bool copies = function == the_copy; // with the number of its last bytes
    return note("cuLaunchKernel",
                hex(function) + " " + std::to_string(x) + " x " + std::to_string(threads) + " " + hex(stream) + ": " +
                    hex(number(0)) + " " + hex(number(1)) + " " + std::to_string(number(2)) +
                    (copies ? " " + std::to_string(*static_cast<const unsigned*>(arguments[3])) : ""));
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

const Entry* find(const char* name) {
    static const Entry entries[] = {
        noted<"cuInit", unsigned>(2000),
        {"cuGetErrorName", 6000, address(error_name)},
        {"cuDeviceGetCount", 2000, address(device_count)},
        {"cuDeviceGet", 2000, address(device_get)},
        {"cuDeviceGetName", 2000, address(device_name)},
        {"cuDeviceGetUuid", 11040, address(device_uuid)},
        {"cuDeviceGetAttribute", 2000, address(device_attribute)},
        {"cuDeviceCanAccessPeer", 4000, address(can_access_peer)},
        {"cuDevicePrimaryCtxRetain", 7000, address(primary_retain)},
        {"cuDevicePrimaryCtxRelease", 11000, address(primary_release)},
        {"cuCtxGetCurrent", 4000, address(ctx_get)},
        {"cuCtxPushCurrent", 4000, address(ctx_push)},
        {"cuCtxPopCurrent", 4000, address(ctx_pop)},
        noted<"cuCtxSynchronize">(2000),
        {"cuCtxRecordEvent", 12050, address(ctx_record_event)},
        {"cuThreadExchangeStreamCaptureMode", 10010, address(exchange_mode)},
        {"cuMemGetAllocationGranularity", 10020, address(granularity)},
        {"cuMemGetInfo", 3020, address(mem_info)},
        {"cuMemAddressReserve", 10020, address(reserve)},
        noted<"cuMemAddressFree", CUdeviceptr, std::size_t>(10020),
        {"cuMemCreate", 10020, address(create)},
        noted<"cuMemRelease", CUpages>(10020),
        {"cuMemExportToShareableHandle", 10020, address(export_pages)},
        {"cuMemImportFromShareableHandle", 10020, address(import_pages)},
        noted<"cuMemMap", CUdeviceptr, std::size_t, std::size_t, CUpages, unsigned long long>(10020),
        noted<"cuMemUnmap", CUdeviceptr, std::size_t>(10020),
        {"cuMemSetAccess", 10020, address(set_access)},
        {"cuMemAlloc", 3020, address(alloc)},
        noted<"cuMemFree", CUdeviceptr>(3020),
        {"cuCtxGetDevice", 2000, address(ctx_device)},
        {"cuDeviceGetDefaultMemPool", 11020, address(default_pool)},
        {"cuMemPoolGetAttribute", 11020, address(pool_attribute)},
        noted<"cuMemPoolTrimTo", CUmemoryPool, std::size_t>(11020),
        {"cuDeviceGetGraphMemAttribute", 11040, address(graph_memory)},
        noted<"cuDeviceGraphMemTrim", CUdevice>(11040),
        noted<"cuMemHostRegister", void*, std::size_t, unsigned>(6050),
        noted<"cuMemHostUnregister", void*>(4000),
        {"cuStreamCreate", 2000, address(stream_create)},
        noted<"cuStreamDestroy", CUstream>(4000),
        {"cuStreamGetCtx", 9020, address(stream_context)},
        noted<"cuStreamWaitEvent", CUstream, CUevent, unsigned>(3020),
        {"cuStreamIsCapturing", 10000, address(stream_capturing)},
        {"cuEventCreate", 2000, address(event_create)},
        noted<"cuEventDestroy", CUevent>(4000),
        noted<"cuEventRecord", CUevent, CUstream>(2000),
        noted<"cuEventQuery", CUevent>(2000),
        noted<"cuEventSynchronize", CUevent>(2000),
        noted<"cuMemcpyDtoHAsync", void*, CUdeviceptr, std::size_t, CUstream>(3020),
        noted<"cuMemcpyHtoDAsync", CUdeviceptr, const void*, std::size_t, CUstream>(3020),
        noted<"cuMemcpyDtoDAsync", CUdeviceptr, CUdeviceptr, std::size_t, CUstream>(3020),
        {"cuMemcpyBatchAsync", 13000, address(copy_batch)},
        noted<"cuMemsetD8Async", CUdeviceptr, unsigned char, std::size_t, CUstream>(3020),
        {"cuModuleLoadData", 2000, address(module_load)},
        noted<"cuModuleUnload", CUmodule>(2000),
        {"cuModuleGetFunction", 2000, address(module_function)},
        noted<"cuFuncLoad", CUfunction>(12040),
        {"cuLaunchKernel", 4000, address(launch_kernel)},
        noted<"cuStreamBeginCapture", CUstream, int>(10010),
        {"cuStreamEndCapture", 10000, address(end_capture)},
        noted<"cuGraphDestroy", CUgraph>(10000),
        {"cuGraphInstantiateWithFlags", 11040, address(graph_instantiate)},
        {"cuGraphExecUpdate", 12000, address(graph_exec_update)},
        noted<"cuGraphLaunch", CUgraphExec, CUstream>(10000),
        noted<"cuGraphExecDestroy", CUgraphExec>(10000),
    };
    for (const Entry& entry : entries) {
        if (std::strcmp(entry.name, name) == 0) return &entry;
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
