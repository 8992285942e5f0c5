// Intercepts allocations that do not go through a shared CUDA runtime: of programs that are linked with a static
// runtime or that call the driver directly. Active only if MEMSAVER_DRIVER_MIN_BYTES is set.
//
// A static runtime loads libcuda.so.1, gets cuGetProcAddress by dlsym, and everything else by cuGetProcAddress. Both
// look-ups are therefore intercepted and return the functions here. Always compiled with optimization: see dlsym.
#include "driver_bypass.hpp"
#include "exported.hpp"
#include "late_function.hpp"
#include "process.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>

using tms::Code;
using tms::DriverBypass;
using tms::Process;

// The underlying types of the driver's types: CUdeviceptr, CUdevice, cuuint64_t, CUdriverProcAddressQueryResult*.
using Pointer = std::uintptr_t;
using GetProcAddress = Code(const char*, void**, int, std::uint64_t);
using GetProcAddressV2 = Code(const char*, void**, int, std::uint64_t, void*);

TMS_EXPORTED Code cuMemAlloc_v2(Pointer* pointer, std::size_t bytes);
TMS_EXPORTED Code cuMemFree_v2(Pointer pointer);
TMS_EXPORTED Code cuMemFreeAsync(Pointer pointer, CUstream_st* stream);
TMS_EXPORTED Code cuMemFreeAsync_ptsz(Pointer pointer, CUstream_st* stream);
TMS_EXPORTED Code cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags);
TMS_EXPORTED Code cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, void* found);

namespace {

using Dlsym = void*(void*, const char*) noexcept; // without noexcept, the call could not be a jump

Dlsym* real_dlsym() noexcept {
    static std::atomic<void*> real{nullptr};
    void* found = real.load();
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
        if (found == nullptr) found = ::dlvsym(RTLD_NEXT, "dlsym", version);
    }
    real = found;
    return reinterpret_cast<Dlsym*>(found);
}

/// Returns the driver's own function; null if the process has not loaded the driver yet.
void* in_driver(const char* name) noexcept {
    static std::atomic<void*> found{nullptr};
    void* driver = found.load();
    if (driver == nullptr) found = driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return driver == nullptr ? nullptr : real_dlsym()(driver, name);
}

/// The driver's own functions. Constant-initialized, because `dlsym` is called before any constructor runs.
template <class Function>
using Real = tms::LateFunction<Function, in_driver>;
constinit Real<Code(Pointer*, std::size_t)> real_alloc{"cuMemAlloc_v2"};
constinit Real<Code(Pointer)> real_free{"cuMemFree_v2"};
constinit Real<Code(Pointer, CUstream_st*)> real_free_async{"cuMemFreeAsync"};
constinit Real<Code(Pointer, CUstream_st*)> real_free_async_ptsz{"cuMemFreeAsync_ptsz"};
constinit Real<Code(int*)> real_current_device{"cuCtxGetDevice"};
constinit Real<GetProcAddress> real_get_proc_address{"cuGetProcAddress"};
constinit Real<GetProcAddressV2> real_get_proc_address_v2{"cuGetProcAddress_v2"};

/// Calls the function, if the process has it.
template <class Function, class... Arguments>
Code call(Real<Function>& real, Arguments... arguments) {
    auto* const function = real.find();
    return function == nullptr ? tms::initialization_error : function(arguments...);
}

bool watching() noexcept { return !DriverBypass::active() && Process::instance().settings.driver_min_bytes != 0; }

template <class Function>
void* address(Function* function) noexcept {
    return reinterpret_cast<void*>(function);
}

/// Returns the replacement for an exported symbol of the driver, or null.
void* stand_in(const char* symbol) noexcept {
    if (std::strncmp(symbol, "cu", 2) != 0) return nullptr; // the common case
    struct Entry {
        const char* symbol;
        void* function;
    };
    static const Entry entries[] = {
        {"cuMemAlloc_v2", address(cuMemAlloc_v2)},       {"cuMemFree_v2", address(cuMemFree_v2)},
        {"cuMemFreeAsync", address(cuMemFreeAsync)},     {"cuMemFreeAsync_ptsz", address(cuMemFreeAsync_ptsz)},
        {"cuGetProcAddress", address(cuGetProcAddress)}, {"cuGetProcAddress_v2", address(cuGetProcAddress_v2)},
    };
    for (const Entry& entry : entries) {
        if (std::strcmp(symbol, entry.symbol) == 0) return watching() ? entry.function : nullptr;
    }
    return nullptr;
}

/// The same for a name passed to cuGetProcAddress: without a suffix, with the version and flags that select it.
void* stand_in(const char* name, int version, std::uint64_t flags) noexcept {
    constexpr std::uint64_t per_thread_default_stream = 2;
    const char* symbol = nullptr;
    if (std::strcmp(name, "cuMemAlloc") == 0 && version >= 3020) symbol = "cuMemAlloc_v2";
    if (std::strcmp(name, "cuMemFree") == 0 && version >= 3020) symbol = "cuMemFree_v2";
    if (std::strcmp(name, "cuMemFreeAsync") == 0)
        symbol = (flags & per_thread_default_stream) != 0 ? "cuMemFreeAsync_ptsz" : "cuMemFreeAsync";
    if (std::strcmp(name, "cuGetProcAddress") == 0)
        symbol = version >= 12000 ? "cuGetProcAddress_v2" : "cuGetProcAddress";
    return symbol == nullptr ? nullptr : stand_in(symbol);
}

void replace(Code code, const char* name, void** function, int version, std::uint64_t flags) noexcept {
    if (code != tms::success || name == nullptr || function == nullptr || *function == nullptr) return;
    if (void* const ours = stand_in(name, version, flags)) *function = ours;
}

void* pointer_of(Pointer address) noexcept {
    return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
}

} // namespace

TMS_EXPORTED Code cuMemAlloc_v2(Pointer* pointer, std::size_t bytes) {
    if (pointer != nullptr && watching() && bytes >= Process::instance().settings.driver_min_bytes &&
        Process::thread().in_region) {
        int device = 0;
        if (const Code asked = call(real_current_device, &device); asked != tms::success) return asked;
        void* allocated = nullptr;
        const Code code = Process::instance().allocate(device, bytes, &allocated);
        if (code == tms::success) *pointer = reinterpret_cast<Pointer>(allocated);
        return code;
    }
    Code code = call(real_alloc, pointer, bytes);
    if (code == tms::memory_allocation && Process::instance().trim() != 0) { // some unused memory was ours
        code = call(real_alloc, pointer, bytes);
    }
    return code;
}

TMS_EXPORTED Code cuMemFree_v2(Pointer pointer) {
    if (Process::instance().owns(pointer_of(pointer))) return Process::instance().free(pointer_of(pointer));
    return call(real_free, pointer);
}

TMS_EXPORTED Code cuMemFreeAsync(Pointer pointer, CUstream_st* stream) {
    if (Process::instance().owns(pointer_of(pointer))) return Process::instance().free(pointer_of(pointer), stream);
    return call(real_free_async, pointer, stream);
}

TMS_EXPORTED Code cuMemFreeAsync_ptsz(Pointer pointer, CUstream_st* stream) {
    constexpr std::uintptr_t per_thread = 2; // CU_STREAM_PER_THREAD, which null means here
    auto* const meant = stream != nullptr ? stream : static_cast<CUstream_st*>(pointer_of(per_thread));
    if (Process::instance().owns(pointer_of(pointer))) return Process::instance().free(pointer_of(pointer), meant);
    return call(real_free_async_ptsz, pointer, stream);
}

TMS_EXPORTED Code cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
    const Code code = call(real_get_proc_address, name, function, version, flags);
    replace(code, name, function, version, flags);
    return code;
}

TMS_EXPORTED Code cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                      void* found) {
    const Code code = call(real_get_proc_address_v2, name, function, version, flags, found);
    replace(code, name, function, version, flags);
    return code;
}

/// The C library resolves RTLD_NEXT relative to the caller, which it determines from the return address. Look-ups that
/// are not intercepted must therefore be forwarded by a jump that preserves the return address: a tail call, compiled
/// with optimization, with no profiling code after it.
TMS_EXPORTED __attribute__((no_profile_instrument_function)) void* dlsym(void* __restrict handle,
                                                                         const char* __restrict name) noexcept {
    if (handle != RTLD_NEXT) {
        // Only if the requested library has the symbol, so that look-ups that would fail still fail.
        if (void* const ours = stand_in(name); ours != nullptr && real_dlsym()(handle, name) != nullptr) return ours;
    }
    return real_dlsym()(handle, name);
}
