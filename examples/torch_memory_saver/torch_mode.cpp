// The two functions of a PyTorch pluggable allocator.
#include "exported.hpp"
#include "process.hpp"

#include <sys/types.h>

#include <string>

using tms::Process;

namespace {

/// Returns `code`; reports any failure except out of memory, which PyTorch detects by a null pointer.
tms::Code told(const char* what, tms::Code code) noexcept {
    if (code != tms::success && code != tms::memory_allocation) {
        (void)tms::as_code([&] { Process::say(std::string{what} + " failed: error " + std::to_string(code)); },
                           [](const std::string&) {});
    }
    return code;
}

} // namespace

/// Returns null if out of memory; PyTorch then frees its caches, retries, and throws its own exception. Outside a
/// region, allocates memory that is never paused.
TMS_EXPORTED void* tms_torch_malloc(ssize_t bytes, int device, CUstream_st*) {
    void* pointer = nullptr;
    if (bytes <= 0) return nullptr;
    Process& process = Process::instance();
    const auto size = static_cast<std::size_t>(bytes);
    (void)told("tms_torch_malloc", Process::thread().in_region ? process.allocate(device, size, &pointer)
                                                               : process.allocate_plain(device, size, &pointer));
    return pointer;
}

/// Waits for the device, like cudaFree.
TMS_EXPORTED void tms_torch_free(void* pointer, ssize_t, int device, CUstream_st*) {
    if (pointer == nullptr) return;
    Process& process = Process::instance();
    (void)(process.owns(pointer) ? process.free(pointer) : process.free_plain(device, pointer));
}
