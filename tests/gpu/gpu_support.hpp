// Shared by the GPU tests: driver calls of the program itself, a few kernels, a gate that keeps a kernel running, and
// the final checks of a FaultyDriver. Independent of the tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <doctest/doctest.h>
#include <memsaver/driver/cuda_api.hpp>
#include <memsaver/memsaver.hpp>
#include <memsaver/testing/testing.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpu_test {
using namespace memsaver;
using namespace memsaver::detail;
using Watched = FaultyDriver<CudaDriver>;

// wait_and_store: runs until *gate is not zero, or for `limit` nanoseconds so that a failing test ends; then stores
// `value` at `out`, unless null. add_one: adds 1 to each of `count` words.
inline constexpr const char* kernels = R"(
.version 7.0
.target sm_60
.address_size 64

.visible .entry wait_and_store(.param .u64 gate, .param .u64 limit, .param .u64 out, .param .u32 value)
{
    .reg .pred %p<4>;
    .reg .b32 %r<3>;
    .reg .b64 %d<7>;
    ld.param.u64 %d1, [gate];
    ld.param.u64 %d2, [limit];
    ld.param.u64 %d3, [out];
    ld.param.u32 %r2, [value];
    mov.u64 %d4, %globaltimer;
again:
    ld.volatile.u32 %r1, [%d1];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra done;
    mov.u64 %d5, %globaltimer;
    sub.u64 %d6, %d5, %d4;
    setp.lt.u64 %p2, %d6, %d2;
    @%p2 bra again;
done:
    setp.eq.u64 %p3, %d3, 0;
    @%p3 bra end;
    st.volatile.u32 [%d3], %r2;
end:
    ret;
}

.visible .entry add_one(.param .u64 data, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [data];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra out;
    mul.wide.u32 %d2, %r5, 4;
    add.s64 %d3, %d1, %d2;
    ld.u32 %r6, [%d3];
    add.u32 %r6, %r6, 1;
    st.u32 [%d3], %r6;
out:
    ret;
}
)";

/// The driver's entry points, called as a program would: in the thread's capture mode.
struct Native {
    CudaLibrary library{default_cuda_library};

    CUresult (*ctx_get)(CUcontext*) = library.entry("cuCtxGetCurrent", 4000);
    CUresult (*ctx_set)(CUcontext) = library.entry("cuCtxSetCurrent", 4000);
    CUresult (*ctx_synchronize)() = library.entry("cuCtxSynchronize", 2000);
    CUresult (*device_get)(CUdevice*, int) = library.entry("cuDeviceGet", 2000);
    CUresult (*primary_retain)(CUcontext*, CUdevice) = library.entry("cuDevicePrimaryCtxRetain", 7000);
    CUresult (*primary_release)(CUdevice) = library.entry("cuDevicePrimaryCtxRelease", 11000);
    CUresult (*mem_info)(std::size_t*, std::size_t*) = library.entry("cuMemGetInfo", 3020);
    CUresult (*host_alloc)(void**, std::size_t, unsigned) = library.entry("cuMemHostAlloc", 2020);
    CUresult (*host_free)(void*) = library.entry("cuMemFreeHost", 2000);
    CUresult (*module_load)(CUmodule*, const void*) = library.entry("cuModuleLoadData", 2000);
    CUresult (*module_unload)(CUmodule) = library.entry("cuModuleUnload", 2000);
    CUresult (*module_function)(CUfunction*, CUmodule, const char*) = library.entry("cuModuleGetFunction", 2000);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                       void**, void**) = library.entry("cuLaunchKernel", 4000);
    CUresult (*stream_create)(CUstream*, unsigned) = library.entry("cuStreamCreate", 2000);
    CUresult (*stream_destroy)(CUstream) = library.entry("cuStreamDestroy", 4000);
    CUresult (*stream_query)(CUstream) = library.entry("cuStreamQuery", 2000);
    CUresult (*stream_synchronize)(CUstream) = library.entry("cuStreamSynchronize", 2000);
    CUresult (*stream_capturing)(CUstream, CUstreamCaptureStatus*) = library.entry("cuStreamIsCapturing", 10000);
    CUresult (*fill)(CUdeviceptr, unsigned char, std::size_t, CUstream) = library.entry("cuMemsetD8Async", 3020);
    CUresult (*copy_to_host)(void*, CUdeviceptr, std::size_t, CUstream) = library.entry("cuMemcpyDtoHAsync", 3020);
    CUresult (*begin_capture)(CUstream, CUstreamCaptureMode) = library.entry("cuStreamBeginCapture", 10010);
    CUresult (*end_capture)(CUstream, CUgraph*) = library.entry("cuStreamEndCapture", 10000);
    CUresult (*graph_instantiate)(CUgraphExec*, CUgraph,
                                  unsigned long long) = library.entry("cuGraphInstantiateWithFlags", 11040);
    CUresult (*graph_launch)(CUgraphExec, CUstream) = library.entry("cuGraphLaunch", 10000);
    CUresult (*graph_destroy)(CUgraph) = library.entry("cuGraphDestroy", 10000);
    CUresult (*graph_exec_destroy)(CUgraphExec) = library.entry("cuGraphExecDestroy", 10000);
};

inline void must(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) throw std::runtime_error{std::string{what} + ": CUDA error " + std::to_string(result)};
}

/// A program on one GPU: its context is current on this thread as long as it lives; the kernels are loaded and have run
/// once, because the first launch of a kernel may wait for the device.
struct Program {
    explicit Program(int device = 0) {
        must(native.ctx_get(&before_), "cuCtxGetCurrent");
        must(native.device_get(&device_, device), "cuDeviceGet");
        must(native.primary_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
        must(native.ctx_set(context_), "cuCtxSetCurrent");
        must(native.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        must(native.stream_create(&other_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        must(native.module_load(&module_, kernels), "cuModuleLoadData");
        must(native.module_function(&wait_and_store_, module_, "wait_and_store"), "cuModuleGetFunction");
        must(native.module_function(&add_one_, module_, "add_one"), "cuModuleGetFunction");
        void* words = nullptr;
        must(native.host_alloc(&words, 4096, 0), "cuMemHostAlloc");
        gate_ = static_cast<std::uint32_t*>(words);
        set(1);
        wait_and_store(stream, nullptr, 0);
        add_one(stream, gate_, 0);
        must(native.ctx_synchronize(), "cuCtxSynchronize");
    }
    ~Program() {
        set(1);
        (void)native.ctx_set(context_);
        (void)native.ctx_synchronize();
        (void)native.host_free(gate_);
        (void)native.module_unload(module_);
        (void)native.stream_destroy(stream);
        (void)native.stream_destroy(other_stream);
        (void)native.ctx_set(before_);
        (void)native.primary_release(device_);
    }

    /// Kernels launched from here on run until `open_gate`.
    void shut_gate() { set(0); }
    void open_gate() { set(1); }

    void wait_and_store(CUstream on, void* out, std::uint32_t value) {
        std::uint64_t limit = 30'000'000'000;
        std::array<void*, 4> arguments{&gate_, &limit, &out, &value};
        must(native.launch(wait_and_store_, 1, 1, 1, 1, 1, 1, 0, on, arguments.data(), nullptr), "cuLaunchKernel");
    }
    /// Makes later work of `on` wait for the gate. Thread-safe.
    void hold(CUstream on) {
        CUcontext before = nullptr;
        must(native.ctx_get(&before), "cuCtxGetCurrent");
        must(native.ctx_set(context_), "cuCtxSetCurrent");
        wait_and_store(on, nullptr, 0);
        must(native.ctx_set(before), "cuCtxSetCurrent");
    }
    void add_one(CUstream on, void* data, std::uint32_t count) {
        std::array<void*, 2> arguments{&data, &count};
        must(native.launch(add_one_, count / 256 + 1, 1, 1, 256, 1, 1, 0, on, arguments.data(), nullptr),
             "cuLaunchKernel");
    }

    /// Returns whether `on` has completed all its work.
    bool idle(CUstream on) {
        const CUresult result = native.stream_query(on);
        if (result != CUDA_ERROR_NOT_READY) must(result, "cuStreamQuery");
        return result == CUDA_SUCCESS;
    }
    void synchronize() { must(native.ctx_synchronize(), "cuCtxSynchronize"); }

    void fill(void* data, unsigned char byte, std::size_t bytes) {
        must(native.fill(reinterpret_cast<CUdeviceptr>(data), byte, bytes, stream), "cuMemsetD8Async");
        must(native.stream_synchronize(stream), "cuStreamSynchronize");
    }
    std::vector<std::uint32_t> read(const void* data, std::size_t count) {
        std::vector<std::uint32_t> words(count);
        must(native.copy_to_host(words.data(), reinterpret_cast<CUdeviceptr>(data), count * sizeof(std::uint32_t),
                                 stream),
             "cuMemcpyDtoHAsync");
        must(native.stream_synchronize(stream), "cuStreamSynchronize");
        return words;
    }
    /// Returns the free bytes reported by cuMemGetInfo.
    std::size_t free_bytes() {
        std::size_t free = 0;
        std::size_t total = 0;
        must(native.mem_info(&free, &total), "cuMemGetInfo");
        return free;
    }

    Native native;
    CUstream stream = nullptr; // non-blocking, like the next one
    CUstream other_stream = nullptr;

private:
    void set(std::uint32_t value) { *static_cast<volatile std::uint32_t*>(gate_) = value; }

    CUcontext before_ = nullptr;
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
    CUfunction wait_and_store_ = nullptr;
    CUfunction add_one_ = nullptr;
    std::uint32_t* gate_ = nullptr;
};

/// Asserts at its end that everything was released and no call was invalid. Construct it before the users of the
/// driver.
struct Ledgered {
    explicit Ledgered(int device = 0) : driver{CudaDriver{device}} {}
    ~Ledgered() {
        driver.on_call({});
        CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
        for (const std::string& violation : driver.violations()) FAIL_CHECK(violation);
    }

    Watched driver;
};

/// What most cases begin with, as TEST_CASE_FIXTURE.
struct OnGpu {
    Program program{};
    const Ledgered books{};
};
} // namespace gpu_test
