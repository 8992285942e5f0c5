// cudaMalloc and cudaFree of the edited CUDA backend. Included after the CUDA runtime's header.
#pragma once

#include "ggml_memsaver.h"

inline cudaError_t ggml_memsaver_cuda_malloc(void** pointer, size_t bytes) {
    if (!ggml_memsaver_on_gpu()) return cudaMalloc(pointer, bytes);
    int device = 0; // the physical device: the backend has selected it before
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    *pointer = ggml_memsaver_gpu_malloc(bytes, device);
    return *pointer != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

template <class T>
cudaError_t ggml_memsaver_cuda_malloc(T** pointer, size_t bytes) {
    return ggml_memsaver_cuda_malloc(reinterpret_cast<void**>(pointer), bytes);
}

// Memory that is not memsaver's, such as managed memory, is freed by CUDA.
inline cudaError_t ggml_memsaver_cuda_free(void* pointer) {
    return ggml_memsaver_gpu_free(pointer) ? cudaSuccess : cudaFree(pointer);
}
