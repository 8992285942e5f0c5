// cuBLAS and its workspace: memory of a tag's in the place of memory of its own, which could not be paused, and which
// captured graphs would hold. The program links cuBLAS; where its header is not, only the guard's template is here.
#pragma once

#include "memsaver/saver/memory_saver.hpp"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif

#include <cstddef>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

/// Hands a cuBLAS handle a workspace, and sees to it that it has it whenever it is used: `cublasSetStream` resets it to
/// cuBLAS's own, whoever calls it. Write the guard wherever cuBLAS wants the handle.
///
///     CublasWorkspace blas{handle, saver.arena("workspace")};
///     cublasGemmEx(blas, ...);
///
/// The workspace must not be paused while cuBLAS works. Two handles, or streams, that run at the same time need a guard
/// each. As cuBLAS's handles, for one thread at a time. Must end before its handle does; cuBLAS then has its own
/// workspace again. `Api` names cuBLAS's types and calls.
template <class Api>
class BasicCublasWorkspace {
public:
    using Handle = typename Api::Handle; ///< of cuBLAS: cublasHandle_t
    using Stream = typename Api::Stream; ///< of cuBLAS: cudaStream_t

    /// What NVIDIA recommends for a Hopper GPU; earlier ones need less.
    static constexpr std::size_t default_bytes = 32_MiB;

    /// A block of the arena's. Throws what Arena::allocate throws, and DriverError if cuBLAS refuses.
    explicit BasicCublasWorkspace(Handle handle, const Arena& arena, std::size_t bytes = default_bytes)
        : handle_{handle}, own_{arena, bytes}, workspace_{own_.data()}, bytes_{bytes} {
        apply();
    }
    explicit BasicCublasWorkspace(Handle handle, const Region& region, std::size_t bytes = default_bytes)
        : BasicCublasWorkspace{handle, region.arena(), bytes} {}
    /// `bytes` at `workspace`, which outlive the guard: from a WorkspacePool, for one.
    BasicCublasWorkspace(Handle handle, void* workspace, std::size_t bytes)
        : handle_{handle}, workspace_{workspace}, bytes_{bytes} {
        apply();
    }

    BasicCublasWorkspace(BasicCublasWorkspace&& other) noexcept
        : handle_{std::exchange(other.handle_, Handle{})}, own_{std::move(other.own_)},
          workspace_{other.workspace_}, bytes_{other.bytes_} {}
    BasicCublasWorkspace& operator=(BasicCublasWorkspace&&) = delete;
    ~BasicCublasWorkspace() {
        Stream stream{}; // setting it again, as it is, makes cuBLAS forget the workspace
        if (handle_ != Handle{} && Api::get_stream(handle_, &stream) == 0) (void)Api::set_stream(handle_, stream);
    }

    /// The handle with the workspace set. Throws DriverError if cuBLAS refuses.
    [[nodiscard]] Handle handle() const {
        apply();
        return handle_;
    }
    operator Handle() const { return handle(); } // NOLINT(google-explicit-constructor): the conversion is the point

    /// cublasSetStream; the workspace stays. Throws DriverError if cuBLAS refuses.
    void set_stream(Stream stream) {
        demand(Api::set_stream(handle_, stream), "cublasSetStream");
        apply();
    }

    /// The address of the workspace, which stays the same.
    [[nodiscard]] void* workspace() const noexcept { return workspace_; }
    /// The size of the workspace.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    void apply() const { demand(Api::set_workspace(handle_, workspace_, bytes_), "cublasSetWorkspace"); }
    void demand(int status, const char* call) const {
        if (status == 0) return;
        check({StatusKind::other, status, Api::status_name(status)}, call, bytes_,
              reinterpret_cast<Address>(workspace_));
    }

    Handle handle_;
    Buffer<std::byte> own_; // empty for a workspace of somebody else's
    void* workspace_;
    std::size_t bytes_;
};

#if __has_include(<cublas_v2.h>)

/// cuBLAS itself.
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

} // namespace memsaver::inline v0_2
