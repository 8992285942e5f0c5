// Declarations that the snippets of the pages use. Never defined: snippets are compiled, not run.
#pragma once

#include <memsaver/memsaver.hpp>
#include <memsaver/testing/testing.hpp>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>

using namespace memsaver;

extern MemorySaver<CudaDriver> saver;
extern const CudaDriver driver;
extern const Arena arena;
extern const EventSink events;
extern const std::size_t bytes;
extern const std::size_t alignment;

extern const cudaStream_t stream;
extern const cudaStream_t compute_stream;
extern const cudaStream_t copy_stream;
extern const cudaMemPool_t my_pool;
extern cudaGraph_t graph; // captured by the program itself

extern const cublasHandle_t handle;
struct ncclComm;
extern ncclComm* const nccl_comm; // an ncclComm_t
extern const void* const new_bytes;
extern const int count;
extern const float factor;
extern float* const values;

void decode_step(cudaStream_t stream);
void load_weights(float* weights);
void attend(void* workspace);
std::size_t shrink(std::size_t wanted);
extern const std::function<void()> body;
