// Turns error codes of the CUDA runtime and cuBLAS into exceptions, and owns objects of the runtime.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace engine {

inline void check_cuda(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error{std::string{what} + " failed: " + cudaGetErrorString(error)};
}
inline void check_blas(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw std::runtime_error{std::string{what} + " failed: " + cublasGetStatusString(status)};
}

struct StreamEnd {
    void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamEnd>;
inline Stream make_stream() {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
    return Stream{stream};
}

struct EventEnd {
    void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
};
using TimedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventEnd>;
inline TimedEvent make_event() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "create an event");
    return TimedEvent{event};
}

struct PinnedEnd {
    void operator()(void* bytes) const noexcept { (void)cudaFreeHost(bytes); }
};
template <class T>
using Pinned = std::unique_ptr<T[], PinnedEnd>;
template <class T>
Pinned<T> make_pinned(std::size_t count) {
    void* bytes = nullptr;
    check_cuda(cudaMallocHost(&bytes, count * sizeof(T)), "allocate pinned memory");
    return Pinned<T>{static_cast<T*>(bytes)};
}

} // namespace engine
