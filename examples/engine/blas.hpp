// cuBLAS for the engine: one handle whose workspace is memsaver's, not cuBLAS' own.
#pragma once

#include "cuda_check.hpp"
#include "kernels.hpp"

#include <memsaver/interop/cublas.hpp>
#include <memsaver/memsaver.hpp>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace engine {

struct BlasEnd {
    void operator()(cublasHandle_t handle) const noexcept { (void)cublasDestroy(handle); }
};
using BlasHandle = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, BlasEnd>;

/// Makes a handle with a minimal workspace: cuBLAS would allocate 64 MiB on a Hopper GPU, which cannot be paused, so
/// the engine gives it one from a pool. A value that the user has set in the environment is kept.
inline BlasHandle make_blas_handle() {
    check_blas(::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 0) == 0 ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_ALLOC_FAILED,
               "set CUBLAS_WORKSPACE_CONFIG");
    cublasHandle_t handle = nullptr;
    check_blas(cublasCreate(&handle), "create a cuBLAS handle");
    return BlasHandle{handle};
}

/// `out` [rows][width_out] = `in` [rows][width_in] times `weights` [width_out][width_in] transposed; sums in float.
template <class Out>
void multiply(memsaver::CublasWorkspace& blas, const bf16* in, const bf16* weights, Out* out, int rows, int width_in,
              int width_out) {
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, float>);
    constexpr float one = 1.0f;
    constexpr float zero = 0.0f;
    constexpr cudaDataType_t kind = std::is_same_v<Out, bf16> ? CUDA_R_16BF : CUDA_R_32F;
    // cuBLAS is column-major: a row-major matrix here is its transpose there.
    check_blas(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, width_out, rows, width_in, &one, weights, CUDA_R_16BF,
                            width_in, in, CUDA_R_16BF, width_in, &zero, out, kind, width_out, CUBLAS_COMPUTE_32F,
                            CUBLAS_GEMM_DEFAULT),
               "multiply matrices");
}

} // namespace engine
