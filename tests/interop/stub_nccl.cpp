// A stub libnccl.so.2 for the tests of interop/nccl.hpp: records every call, fails on request, and reports calls that
// NCCL would not allow. tests/static/nccl_abi_test.cpp checks its types against NCCL's header.
#include "stub_nccl.hpp"

#include "memsaver/interop/nccl.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using Result = memsaver::detail::nccl::Result;

StubNccl& state() {
    static StubNccl only;
    return only;
}

Result note(const std::string& call, bool of_awake = true) {
    StubNccl& stub = state();
    stub.calls.push_back(call);
    if (of_awake && stub.suspended) stub.wrong.push_back(call + " of a suspended communicator");
    if (stub.on_call != nullptr) stub.on_call(call.c_str(), stub.context);
    const auto planned = stub.fails.find(call.substr(0, call.find(' ')));
    if (planned != stub.fails.end()) return planned->second;
    return stub.polls > 0 ? memsaver::detail::nccl::in_progress : 0;
}

std::uintptr_t last = 0;

} // namespace

extern "C" {

StubNccl* stub_nccl() { return &state(); }

Result ncclGetVersion(int* version) {
    *version = state().version;
    return 0;
}
const char* ncclGetErrorString(Result result) { return result == 6 ? "remote process exited" : "stub error"; }
const char* ncclGetLastError(ncclComm*) { return "what the stub said last"; }
Result ncclCommGetAsyncError(ncclComm*, Result* error) {
    StubNccl& stub = state();
    *error = stub.polls > 0 ? memsaver::detail::nccl::in_progress : stub.async_error;
    if (stub.polls > 0) stub.polls -= 1;
    const auto planned = stub.fails.find("ask");
    return planned != stub.fails.end() ? planned->second : 0;
}
Result ncclCommRegister(ncclComm*, void*, std::size_t bytes, void** handle) {
    *handle = reinterpret_cast<void*>(++last);
    return note("register " + std::to_string(bytes));
}
Result ncclCommDeregister(ncclComm*, void* handle) {
    if (handle == nullptr) state().wrong.emplace_back("deregister of nothing");
    return note("deregister");
}
Result ncclCommWindowRegister(ncclComm*, void*, std::size_t bytes, ncclWindow_vidmem** window, int flags) {
    *window = reinterpret_cast<ncclWindow_vidmem*>(++last);
    return note("window " + std::to_string(bytes) + ' ' + std::to_string(flags));
}
Result ncclCommWindowDeregister(ncclComm*, ncclWindow_vidmem* window) {
    if (window == nullptr) state().wrong.emplace_back("unwindow of nothing");
    return note("unwindow");
}
Result ncclCommSuspend(ncclComm*, int flags) {
    const Result result = note("suspend " + std::to_string(flags));
    if (result == 0 || result == memsaver::detail::nccl::in_progress) state().suspended = true;
    return result;
}
Result ncclCommResume(ncclComm*) {
    if (!state().suspended) state().wrong.emplace_back("resume of what is not suspended");
    const Result result = note("resume", false);
    if (result == 0 || result == memsaver::detail::nccl::in_progress) state().suspended = false;
    return result;
}

} // extern "C"
