// The part of the CUDA runtime's interface that the tests need, declared as a toolkit would.
#pragma once

#include <cstddef>

extern "C" {
int cudaMalloc(void** pointer, std::size_t bytes);
int cudaFree(void* pointer);
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
int cudaGetLastError();
/// Not in the real runtime: frees as cudaFreeAsync does, on the default stream.
int host_cudart_free_async(void* pointer);
}
