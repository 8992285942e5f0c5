// A CUDA runtime with a few functions, which finds its driver as the real one does: dlopen, dlsym for cuGetProcAddress,
// and cuGetProcAddress for everything else. Built as libcudart.so.13, and linked statically into a program.
#include "host_cudart.hpp"

#include <dlfcn.h>

#include <cstdint>

namespace {

using Alloc = int(std::uintptr_t*, std::size_t);
using Free = int(std::uintptr_t);
using FreeAsync = int(std::uintptr_t, void*);

thread_local int device = 0;
thread_local bool has_context = false;

template <class Function>
Function* entry(const char* name) {
    static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return nullptr;
    using GetProcAddress = int(const char*, void**, int, std::uint64_t, void*);
    static auto* const get = reinterpret_cast<GetProcAddress*>(::dlsym(driver, "cuGetProcAddress_v2"));
    void* found = nullptr;
    if (get == nullptr || get(name, &found, 13000, 0, nullptr) != 0) return nullptr;
    return reinterpret_cast<Function*>(found);
}

void make_current() {
    if (has_context) return;
    void* context = nullptr;
    entry<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device);
    entry<int(void*)>("cuCtxPushCurrent")(context);
    has_context = true;
}

} // namespace

#define HOST_EXPORTED extern "C" [[gnu::visibility("default")]]

HOST_EXPORTED int cudaGetDevice(int* out) { return *out = device, 0; }
HOST_EXPORTED int cudaSetDevice(int next) {
    void* context = nullptr;
    if (has_context) entry<int(void**)>("cuCtxPopCurrent")(&context);
    has_context = false;
    device = next;
    return 0;
}
HOST_EXPORTED int cudaGetLastError() { return 0; }
HOST_EXPORTED int cudaMalloc(void** pointer, std::size_t bytes) {
    make_current();
    std::uintptr_t address = 0;
    const int code = entry<Alloc>("cuMemAlloc")(&address, bytes);
    *pointer = reinterpret_cast<void*>(address);
    return code;
}
HOST_EXPORTED int cudaFree(void* pointer) {
    make_current();
    return pointer == nullptr ? 0 : entry<Free>("cuMemFree")(reinterpret_cast<std::uintptr_t>(pointer));
}
HOST_EXPORTED int host_cudart_free_async(void* pointer) {
    make_current();
    return entry<FreeAsync>("cuMemFreeAsync")(reinterpret_cast<std::uintptr_t>(pointer), nullptr);
}
