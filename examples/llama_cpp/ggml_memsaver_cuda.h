// cudaMalloc and cudaFree of the edited CUDA backend. Included behind the CUDA runtime's header.
#pragma once

#include "ggml_memsaver.h"

inline cudaError_t ggml_memsaver_cuda_malloc(void** pointer, size_t bytes) {
    if (!ggml_memsaver_on_gpu()) return cudaMalloc(pointer, bytes);
    int device = 0; // the physical one: the backend has chosen it before
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    *pointer = ggml_memsaver_gpu_malloc(bytes, device);
    return *pointer != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

template <class T>
cudaError_t ggml_memsaver_cuda_malloc(T** pointer, size_t bytes) {
    return ggml_memsaver_cuda_malloc(reinterpret_cast<void**>(pointer), bytes);
}

// What is not memsaver's, as managed memory, is CUDA's.
inline cudaError_t ggml_memsaver_cuda_free(void* pointer) {
    return ggml_memsaver_gpu_free(pointer) ? cudaSuccess : cudaFree(pointer);
}
