// The interface between tests and the stub libnccl.so.2.
#pragma once

#include <map>
#include <string>
#include <vector>

/// One per process, like the library: `extern "C" StubNccl* stub_nccl()`.
struct StubNccl {
    int version = 22907;
    std::vector<std::string> calls;   ///< "suspend", "window 4096": in call order
    std::map<std::string, int> fails; ///< the first word of a call, and its result from now on
    int async_error = 0;
    int polls = 0; ///< number of queries that return ncclInProgress first
    bool suspended = false;
    std::vector<std::string> wrong; ///< calls that NCCL does not allow
    void (*on_call)(const char* call, void* context) = nullptr;
    void* context = nullptr;
};
