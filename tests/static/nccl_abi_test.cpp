// The declarations of interop/nccl.hpp agree with NCCL's header, if there is one.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include "memsaver/interop/nccl.hpp"

#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace static_nccl_abi_test {

namespace nccl = memsaver::detail::nccl;
using Library = memsaver::detail::NcclLibrary;

static_assert(std::is_same_v<ncclComm_t, ncclComm*>);
static_assert(sizeof(nccl::Result) == sizeof(ncclResult_t));
static_assert(nccl::success == ncclSuccess && nccl::in_progress == ncclInProgress);
static_assert(nccl::first_with_suspend == NCCL_VERSION(2, 29, 7));

/// The same number of arguments, each of the same size.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class A, class B, class... Ours, class... Theirs>
struct SameCall<A (*)(Ours...), B (*)(Theirs...)>
    : std::bool_constant<sizeof(A) == sizeof(B) && sizeof...(Ours) == sizeof...(Theirs) &&
                         ((sizeof(Ours) == sizeof(Theirs)) && ...)> {};

static_assert(SameCall<decltype(Library::get_version), decltype(&ncclGetVersion)>::value);
static_assert(SameCall<decltype(Library::get_error_string), decltype(&ncclGetErrorString)>::value);
static_assert(SameCall<decltype(Library::get_last_error), decltype(&ncclGetLastError)>::value);
static_assert(SameCall<decltype(Library::comm_get_async_error), decltype(&ncclCommGetAsyncError)>::value);
static_assert(SameCall<decltype(Library::comm_device), decltype(&ncclCommCuDevice)>::value);
static_assert(SameCall<decltype(Library::comm_register), decltype(&ncclCommRegister)>::value);
static_assert(SameCall<decltype(Library::comm_deregister), decltype(&ncclCommDeregister)>::value);
#if NCCL_VERSION_CODE >= 22907
static_assert(std::is_same_v<ncclWindow_t, ncclWindow_vidmem*>);
static_assert(nccl::suspend_memory == NCCL_SUSPEND_MEM);
static_assert(SameCall<decltype(Library::comm_window_register), decltype(&ncclCommWindowRegister)>::value);
static_assert(SameCall<decltype(Library::comm_window_deregister), decltype(&ncclCommWindowDeregister)>::value);
static_assert(SameCall<decltype(Library::comm_suspend), decltype(&ncclCommSuspend)>::value);
static_assert(SameCall<decltype(Library::comm_resume), decltype(&ncclCommResume)>::value);
#endif

} // namespace static_nccl_abi_test
#endif
