// The published libraries are linked with the CUDA runtime, so its functions can be looked up in them.
// torch_memory_saver's tests look up these two; here they forward to the process' runtime.
#include "exported.hpp"
#include "real_runtime.hpp"

using tms::Code;
using tms::RuntimeFunction;

namespace {

constinit RuntimeFunction<Code(unsigned*, void*)> runtime_host_get_flags{"cudaHostGetFlags"};
constinit RuntimeFunction<Code()> runtime_get_last_error{"cudaGetLastError"};

} // namespace

TMS_EXPORTED Code cudaHostGetFlags(unsigned* flags, void* pointer) {
    auto* const real = runtime_host_get_flags.find();
    return real == nullptr ? tms::initialization_error : real(flags, pointer);
}

TMS_EXPORTED Code cudaGetLastError() {
    auto* const real = runtime_get_last_error.find();
    return real == nullptr ? tms::success : real();
}
