// What tests tell a libnccl.so.2 without NCCL behind it, and what it tells them.
#pragma once

#include <map>
#include <string>
#include <vector>

/// One for the process, as the library is: `extern "C" StubNccl* stub_nccl()`.
struct StubNccl {
    int version = 22907;
    std::vector<std::string> calls;   ///< "suspend", "window 4096": in the order in which they came
    std::map<std::string, int> fails; ///< the first word of a call, and what it answers from now on
    int async_error = 0;
    int polls = 0; ///< so many questions are answered with ncclInProgress first
    bool suspended = false;
    std::vector<std::string> wrong; ///< calls that NCCL does not allow
    void (*on_call)(const char* call, void* context) = nullptr;
    void* context = nullptr;
};
