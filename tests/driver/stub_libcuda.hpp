// What the stub libcuda.so.1 and the test that drives it share: switches for the test to set, and a log of calls.
// Plain values only, so that it needs no CUDA headers.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

struct StubCall {
    std::string name;
    std::string text;   ///< the arguments, as the test wants to read them
    int context_device; ///< whose context was current, -1 for none
    int capture_mode;   ///< the thread's, as CUstreamCaptureMode
};

/// One for the library. `reset()` between tests; it keeps the count of contexts, which must end at 0 by itself.
struct StubState {
    std::mutex mutex = {};

    // switches
    int version = 13000;
    int devices = 2;
    std::string missing = {};              ///< an entry point that the driver lacks
    std::map<std::string, int> fails = {}; ///< what a call answers, by its name; the call then does nothing
    std::map<int, int> attributes = {};    ///< what a device attribute is; 1 unless it is told here
    bool peers_can_access = true;
    std::size_t minimum = 2U << 20;
    std::size_t recommended = 2U << 20;
    int capture_status = 0; ///< of every stream

    // what happened
    std::vector<StubCall> calls = {};
    std::vector<std::pair<std::string, int>> asked = {}; ///< cuGetProcAddress: names and versions
    std::vector<unsigned long long> flavours = {};       ///< and its flags
    std::map<int, int> retained = {};                    ///< primary contexts by device
    unsigned streams = 0;                                ///< how many were created: 0x100, 0x200, ...

    void reset() {
        const std::lock_guard lock{mutex};
        version = 13000;
        devices = 2;
        missing.clear();
        fails.clear();
        attributes.clear();
        peers_can_access = true;
        minimum = recommended = 2U << 20;
        capture_status = 0;
        calls.clear();
        asked.clear();
        flavours.clear();
        streams = 0;
    }
};

/// One for each thread.
struct StubThread {
    std::vector<void*> contexts = {};
    int capture_mode = 0; ///< CU_STREAM_CAPTURE_MODE_GLOBAL, as every thread starts
};

extern "C" {
StubState* memsaver_stub_state();
StubThread* memsaver_stub_thread();
}
