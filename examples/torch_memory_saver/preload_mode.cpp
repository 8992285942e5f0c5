// Replaces the CUDA runtime's cudaMalloc and cudaFree. Outside regions, and for foreign pointers, calls the runtime's
// own functions.
#include "exported.hpp"
#include "process.hpp"
#include "real_runtime.hpp"

using tms::Code;
using tms::Process;
using tms::RuntimeFunction;

namespace {

constinit RuntimeFunction<Code(void**, std::size_t)> runtime_malloc{"cudaMalloc"};
constinit RuntimeFunction<Code(void*)> runtime_free{"cudaFree"};
constinit RuntimeFunction<Code(int*)> runtime_get_device{"cudaGetDevice"};
constinit RuntimeFunction<Code()> runtime_get_last_error{"cudaGetLastError"};

Code real_malloc(void** pointer, std::size_t bytes) {
    auto* const real = runtime_malloc.find();
    if (real == nullptr) return tms::initialization_error;
    Code code = real(pointer, bytes);
    if (code == tms::memory_allocation && Process::instance().trim() != 0) {
        // Some unused memory was ours.
        if (auto* const forget = runtime_get_last_error.find()) (void)forget();
        code = real(pointer, bytes);
    }
    return code;
}

Code current_device(int& device) {
    auto* const real = runtime_get_device.find();
    return real == nullptr ? tms::initialization_error : real(&device);
}

} // namespace

TMS_EXPORTED Code cudaMalloc(void** pointer, std::size_t bytes) {
    if (!Process::thread().in_region) return real_malloc(pointer, bytes);
    int device = 0;
    if (const Code code = current_device(device); code != tms::success) return code;
    return Process::instance().allocate(device, bytes, pointer);
}

TMS_EXPORTED Code cudaFree(void* pointer) {
    if (Process::instance().owns(pointer)) return Process::instance().free(pointer);
    auto* const real = runtime_free.find();
    return real == nullptr ? tms::initialization_error : real(pointer);
}
