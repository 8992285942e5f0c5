// The singletons of a library: settings, engine, thread settings. Converts exceptions of C calls to codes. Independent
// of PyTorch and the CUDA runtime; exposes no driver types.
#pragma once

#include "codes.hpp"
#include "settings.hpp"
#include "thread_settings.hpp"

#include <cstddef>
#include <memory>
#include <string>

struct CUstream_st; // the type that cudaStream_t and CUstream point to

namespace tms {

class Process {
public:
    /// Returns this library's instance, made by the first call. Never destroyed: PyTorch frees memory until the process
    /// ends.
    static Process& instance();

    /// Returns the settings of the calling thread.
    static ThreadSettings& thread() noexcept;

    /// Prints a line to standard error.
    static void say(const std::string& text);

    /// Like cudaMalloc on `device`, for the thread's tag. For 0 bytes, sets null and returns success.
    Code allocate(int device, std::size_t bytes, void** pointer) noexcept;
    /// Returns whether `pointer` is memory of a tag.
    [[nodiscard]] bool owns(const void* pointer) const noexcept;
    /// Like cudaFree, for owned pointers.
    Code free(void* pointer) noexcept;
    /// Like cudaFreeAsync, for owned pointers.
    Code free(void* pointer, CUstream_st* stream) noexcept;

    /// Device memory that belongs to no tag and is never paused.
    Code allocate_plain(int device, std::size_t bytes, void** pointer) noexcept;
    Code free_plain(int device, void* pointer) noexcept;

    /// Null and "" mean every tag.
    Code pause(const char* tag) noexcept;
    Code resume(const char* tag) noexcept;
    const void* backup_of(const void* pointer, std::size_t bytes) noexcept;
    /// Releases unused pages. Returns the released bytes.
    std::size_t trim() noexcept;

    void set_retain(bool retain) noexcept;
    [[nodiscard]] bool retain() const noexcept;
    void set_margin(std::size_t bytes) noexcept;
    void set_disk_directory(const char* directory);

    const Settings settings;
    Names names;

private:
    Process();
    ~Process();

    static void after_fork(bool child) noexcept;

    static const int watched_; // forks are, from the library's loading on
    const std::string* const default_tag_;

    struct Core;
    const std::unique_ptr<Core> core_;
};

} // namespace tms
