// Allocations that do not come through a shared CUDA runtime: programs that are linked with a static one, or that call
// the driver themselves. Only where MEMSAVER_DRIVER_MIN_BYTES says so.
//
// A static runtime loads libcuda.so.1, asks it by dlsym for cuGetProcAddress, and that for everything else. So both
// ways of asking are watched, and what is asked for is answered with the functions here. Compiled with optimization
// always: see dlsym.
#include "driver_bypass.hpp"
#include "exported.hpp"
#include "process.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

using tms::Code;
using tms::DriverBypass;
using tms::Process;

// The driver's types, by what they are: CUdeviceptr, CUdevice, cuuint64_t, CUdriverProcAddressQueryResult*.
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

using Dlsym = void*(void*, const char*) noexcept; // or the call of it could not be a jump

Dlsym* real_dlsym() noexcept {
    static Dlsym* const real = [] {
        void* found = nullptr;
        for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
            if (found == nullptr) found = ::dlvsym(RTLD_NEXT, "dlsym", version);
        }
        return reinterpret_cast<Dlsym*>(found);
    }();
    return real;
}

/// The driver's own function; null where the process has no driver.
template <class Function>
Function* real(const char* name) noexcept {
    static void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return driver == nullptr ? nullptr : reinterpret_cast<Function*>(real_dlsym()(driver, name));
}

bool watching() noexcept { return !DriverBypass::active() && Process::instance().settings.driver_min_bytes != 0; }

template <class Function>
void* address(Function* function) noexcept {
    return reinterpret_cast<void*>(function);
}

/// What stands in for an exported symbol of the driver, or null.
void* stand_in(const char* symbol) noexcept {
    if (std::strncmp(symbol, "cu", 2) != 0) return nullptr; // nearly all
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

/// The same for a name as cuGetProcAddress takes it: without a suffix, with a version and flags that choose it.
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

Code real_free(Pointer pointer) noexcept {
    static auto* const real_one = real<Code(Pointer)>("cuMemFree_v2");
    return real_one == nullptr ? tms::initialization_error : real_one(pointer);
}

void* pointer_of(Pointer address) noexcept {
    return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
}

} // namespace

TMS_EXPORTED Code cuMemAlloc_v2(Pointer* pointer, std::size_t bytes) {
    if (pointer != nullptr && watching() && bytes >= Process::instance().settings.driver_min_bytes &&
        Process::thread().in_region) {
        static auto* const current_device = real<Code(int*)>("cuCtxGetDevice");
        int device = 0;
        const Code asked = current_device == nullptr ? tms::initialization_error : current_device(&device);
        if (asked != tms::success) return asked;
        void* allocated = nullptr;
        const Code code = Process::instance().allocate(device, bytes, &allocated);
        if (code == tms::success) *pointer = reinterpret_cast<Pointer>(allocated);
        return code;
    }
    static auto* const real_one = real<Code(Pointer*, std::size_t)>("cuMemAlloc_v2");
    return real_one == nullptr ? tms::initialization_error : real_one(pointer, bytes);
}

TMS_EXPORTED Code cuMemFree_v2(Pointer pointer) {
    if (Process::instance().owns(pointer_of(pointer))) return Process::instance().free(pointer_of(pointer));
    return real_free(pointer);
}

TMS_EXPORTED Code cuMemFreeAsync(Pointer pointer, CUstream_st* stream) {
    if (Process::instance().owns(pointer_of(pointer))) return Process::instance().free(pointer_of(pointer), stream);
    static auto* const real_one = real<Code(Pointer, CUstream_st*)>("cuMemFreeAsync");
    return real_one == nullptr ? tms::initialization_error : real_one(pointer, stream);
}

TMS_EXPORTED Code cuMemFreeAsync_ptsz(Pointer pointer, CUstream_st* stream) {
    constexpr std::uintptr_t per_thread = 2; // CU_STREAM_PER_THREAD, which null stands for here
    auto* const meant = stream != nullptr ? stream : static_cast<CUstream_st*>(pointer_of(per_thread));
    if (Process::instance().owns(pointer_of(pointer))) return Process::instance().free(pointer_of(pointer), meant);
    static auto* const real_one = real<Code(Pointer, CUstream_st*)>("cuMemFreeAsync_ptsz");
    return real_one == nullptr ? tms::initialization_error : real_one(pointer, stream);
}

TMS_EXPORTED Code cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
    static auto* const real_one = real<GetProcAddress>("cuGetProcAddress");
    if (real_one == nullptr) return tms::initialization_error;
    const Code code = real_one(name, function, version, flags);
    replace(code, name, function, version, flags);
    return code;
}

TMS_EXPORTED Code cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                      void* found) {
    static auto* const real_one = real<GetProcAddressV2>("cuGetProcAddress_v2");
    if (real_one == nullptr) return tms::initialization_error;
    const Code code = real_one(name, function, version, flags, found);
    replace(code, name, function, version, flags);
    return code;
}

/// What RTLD_NEXT means depends on who calls, which the C library reads off the return address. So everything that is
/// not stood in for is passed on by a jump that leaves it in place: a call in tail position, with optimization on.
TMS_EXPORTED void* dlsym(void* __restrict handle, const char* __restrict name) noexcept {
    if (handle != RTLD_NEXT) {
        // Only for what the library asked has, as it would answer without us.
        if (void* const ours = stand_in(name); ours != nullptr && real_dlsym()(handle, name) != nullptr) return ours;
    }
    return real_dlsym()(handle, name);
}
