// Definitions of cuda_api.hpp.
#pragma once

#include "memsaver/driver/cuda_api.hpp"

#include <dlfcn.h>

#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE CudaLibrary::CudaLibrary(const char* file) : file_{file} { open(); }

MEMSAVER_INLINE CudaLibrary::~CudaLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
}

MEMSAVER_INLINE CudaLibrary::Entry CudaLibrary::entry(const char* name, int since) {
    Entry found = optional_entry(name, since);
    if (found.address == nullptr && state_) {
        fail(CudaProblem::missing_entry_point,
             text_of({"the CUDA driver (", file_, ", CUDA ", version_text(version_), ") lacks the entry point ", name,
                      " of CUDA ", version_text(since)}));
    }
    return found;
}

MEMSAVER_INLINE CudaLibrary::Entry CudaLibrary::optional_entry(const char* name, int since) noexcept {
    if (get_proc_address_ == nullptr || since > version_) return {nullptr}; // or its signature differs
    void* address = nullptr;
    const cuda::Result result = get_proc_address_(name, &address, since, cuda::legacy_stream, nullptr);
    return {result == cuda::success ? address : nullptr};
}

MEMSAVER_INLINE void CudaLibrary::open() {
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

MEMSAVER_INLINE CudaLibrary::Entry CudaLibrary::symbol(const char* name) {
    Entry found{::dlsym(handle_, name)};
    if (found.address == nullptr) {
        fail(CudaProblem::missing_entry_point, text_of({"the CUDA driver (", file_, ") lacks the entry point ", name}));
    }
    return found;
}

MEMSAVER_INLINE void CudaLibrary::fail(CudaProblem problem, std::string reason) {
    if (state_) state_ = CudaAvailability{problem, std::move(reason)};
}

MEMSAVER_INLINE std::string CudaLibrary::version_text(int number) {
    return text_of({in_digits(number / 1000), ".", in_digits(number % 1000 / 10)});
}

MEMSAVER_INLINE Status CudaApi::status(Result result) const noexcept {
    if (result == cuda::success) return {};
    const char* name = nullptr;
    const bool known = error_name(result, &name) == cuda::success && name != nullptr;
    const int code = static_cast<int>(result);
    return {cuda_status_kind(code), code, known ? name : "unknown CUDA error"};
}

MEMSAVER_INLINE int native(CaptureMode mode) noexcept {
    switch (mode) {
    case CaptureMode::global: return cuda::capture_global;
    case CaptureMode::thread_local_: return cuda::capture_thread_local;
    case CaptureMode::relaxed: break;
    }
    return cuda::capture_relaxed;
}

MEMSAVER_INLINE CudaScope::CudaScope(const CudaApi& api, cuda::Context context) noexcept
    : api_{api}, result_{api.ctx_push(context)} {
    if (result_ != cuda::success) return;
    pushed_ = true;
    result_ = api_.exchange_capture_mode(&mode_);
    exchanged_ = result_ == cuda::success;
}

MEMSAVER_INLINE CudaScope::~CudaScope() {
    if (exchanged_) api_.exchange_capture_mode(&mode_);
    cuda::Context ours = nullptr;
    if (pushed_) api_.ctx_pop(&ours);
}

} // namespace detail

} // namespace memsaver::inline v0_3
