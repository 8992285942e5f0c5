// cuBLAS workspaces in a tag's memory. They replace the workspace that cuBLAS allocates itself, which cannot be paused
// and which captured graphs hold. The program links cuBLAS. Without its header only the guard's template is declared.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/saver/memory_saver.hpp"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif

#include <cstddef>
#include <utility>

namespace memsaver::inline v0_3 {

/// Sets the workspace of a cuBLAS handle and sets it again at every use of the handle, because `cublasSetStream` resets
/// it to cuBLAS's own, no matter who calls it. Pass the guard wherever cuBLAS takes the handle.
///
///     CublasWorkspace blas{handle, saver.arena("workspace")};
///     cublasGemmEx(blas, ...);
///
/// The workspace must not be paused while cuBLAS uses it. Handles or streams that run concurrently each need their own
/// guard. Like a cuBLAS handle, a guard must be used by one thread at a time. It must be destroyed before its handle;
/// cuBLAS then uses its own workspace again. `Api` provides cuBLAS's types and calls.
template <class Api>
class BasicCublasWorkspace {
public:
    using Handle = typename Api::Handle; ///< cublasHandle_t
    using Stream = typename Api::Stream; ///< cudaStream_t

    /// NVIDIA's recommendation for Hopper GPUs; earlier GPUs need less.
    static constexpr std::size_t default_bytes = 32_MiB;

    /// Allocates the workspace from `arena`. Throws as Arena::allocate, and DriverError if cuBLAS reports an error.
    explicit BasicCublasWorkspace(Handle handle, const Arena& arena, std::size_t bytes = default_bytes)
        : handle_{handle}, own_{arena, bytes}, workspace_{own_.data()}, bytes_{bytes} {
        apply();
    }
    explicit BasicCublasWorkspace(Handle handle, const Region& region, std::size_t bytes = default_bytes)
        : BasicCublasWorkspace{handle, region.arena(), bytes} {}
    /// Uses `bytes` at `workspace`, for example from a WorkspacePool. The memory must outlive the guard.
    BasicCublasWorkspace(Handle handle, void* workspace, std::size_t bytes)
        : handle_{handle}, workspace_{workspace}, bytes_{bytes} {
        apply();
    }

    BasicCublasWorkspace(BasicCublasWorkspace&& other) noexcept
        : handle_{std::exchange(other.handle_, Handle{})}, own_{std::move(other.own_)},
          workspace_{other.workspace_}, bytes_{other.bytes_} {}
    BasicCublasWorkspace& operator=(BasicCublasWorkspace&&) = delete;
    ~BasicCublasWorkspace() {
        Stream stream{}; // setting the same stream again resets the workspace
        if (handle_ != Handle{} && Api::get_stream(handle_, &stream) == 0) (void)Api::set_stream(handle_, stream);
    }

    /// Sets the workspace and returns the handle. Throws DriverError if cuBLAS reports an error.
    [[nodiscard]] Handle handle() const {
        apply();
        return handle_;
    }
    operator Handle() const { return handle(); } // NOLINT(google-explicit-constructor): the conversion is the point

    /// Calls cublasSetStream and keeps the workspace. Throws DriverError if cuBLAS reports an error.
    void set_stream(Stream stream) {
        demand(Api::set_stream(handle_, stream), "cublasSetStream");
        apply();
    }

    /// The address of the workspace; it never changes.
    [[nodiscard]] void* workspace() const noexcept { return workspace_; }
    /// The size of the workspace in bytes.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    void apply() const { demand(Api::set_workspace(handle_, workspace_, bytes_), "cublasSetWorkspace"); }
    void demand(int status, const char* call) const {
        if (status == 0) return;
        check({StatusKind::other, status, Api::status_name(status)}, call, bytes_,
              reinterpret_cast<Address>(workspace_));
    }

    Handle handle_;
    Buffer<std::byte> own_; // empty if the caller owns the workspace
    void* workspace_;
    std::size_t bytes_;
};

#if __has_include(<cublas_v2.h>)

/// The real cuBLAS.
struct CublasApi {
    using Handle = cublasHandle_t;
    using Stream = cudaStream_t;

    static int set_stream(Handle handle, Stream stream) noexcept { return cublasSetStream(handle, stream); }
    static int get_stream(Handle handle, Stream* stream) noexcept { return cublasGetStream(handle, stream); }
    static int set_workspace(Handle handle, void* workspace, std::size_t bytes) noexcept {
        return cublasSetWorkspace(handle, workspace, bytes);
    }
    static const char* status_name(int status) noexcept {
        return cublasGetStatusName(static_cast<cublasStatus_t>(status));
    }
};

using CublasWorkspace = BasicCublasWorkspace<CublasApi>;

#endif

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
