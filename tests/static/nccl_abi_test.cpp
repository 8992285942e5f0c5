// The declarations of interop/nccl.hpp agree with NCCL's header, if there is one.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include "memsaver/interop/nccl.hpp"

#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace static_nccl_abi_test {

namespace nccl = memsaver::detail::nccl;

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

static_assert(SameCall<nccl::GetVersion, decltype(&ncclGetVersion)>::value);
static_assert(SameCall<nccl::GetErrorString, decltype(&ncclGetErrorString)>::value);
static_assert(SameCall<nccl::GetLastError, decltype(&ncclGetLastError)>::value);
static_assert(SameCall<nccl::CommGetAsyncError, decltype(&ncclCommGetAsyncError)>::value);
static_assert(SameCall<nccl::CommCuDevice, decltype(&ncclCommCuDevice)>::value);
static_assert(SameCall<nccl::CommRegister, decltype(&ncclCommRegister)>::value);
static_assert(SameCall<nccl::CommDeregister, decltype(&ncclCommDeregister)>::value);
#if NCCL_VERSION_CODE >= 22907
static_assert(std::is_same_v<ncclWindow_t, ncclWindow_vidmem*>);
static_assert(nccl::suspend_memory == NCCL_SUSPEND_MEM);
static_assert(SameCall<nccl::CommWindowRegister, decltype(&ncclCommWindowRegister)>::value);
static_assert(SameCall<nccl::CommWindowDeregister, decltype(&ncclCommWindowDeregister)>::value);
static_assert(SameCall<nccl::CommSuspend, decltype(&ncclCommSuspend)>::value);
static_assert(SameCall<nccl::CommResume, decltype(&ncclCommResume)>::value);
#endif

} // namespace static_nccl_abi_test
#endif
