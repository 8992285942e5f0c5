// Headers for third-party interfaces, compiled with the third-party headers if available.
#include "memsaver/interop/cublas.hpp"
#include "memsaver/interop/nvtx.hpp"
#include "memsaver/memsaver.hpp"

#include <type_traits>

namespace interop_test {
using namespace memsaver;
using namespace memsaver::detail;

static_assert(!std::is_copy_constructible_v<Hook> && std::is_nothrow_move_constructible_v<Hook>);

// "Hook trim = saver.after_pause(trim_cuda_pools);" on every driver.
template <class Driver>
[[maybe_unused]] void trim(MemorySaver<Driver>& saver) {
    [[maybe_unused]] const Hook trim = saver.after_pause(trim_cuda_pools);
    [[maybe_unused]] const Hook after = saver.after_resume(TrimCudaPools{.graph_memory = false, .keep_bytes = 1_MiB});
    [[maybe_unused]] const Hook function = saver.after_pause([](PauseEvent&) {});
}
template void trim(MemorySaver<HostDriver>&);
template void trim(MemorySaver<CudaDriver>&);

} // namespace interop_test

#if __has_include(<cublas_v2.h>)
template class memsaver::BasicCublasWorkspace<memsaver::CublasApi>;
static_assert(std::is_convertible_v<const memsaver::CublasWorkspace&, cublasHandle_t>);
static_assert(!std::is_copy_constructible_v<memsaver::CublasWorkspace>);
#endif

#if __has_include(<nvtx3/nvToolsExt.h>)
template class memsaver::BasicNvtxRanges<memsaver::NvtxApi>;
static_assert(std::is_convertible_v<memsaver::NvtxRanges, memsaver::EventSink>);
#endif
