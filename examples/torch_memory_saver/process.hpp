// What a library has once: its settings, its engine, its threads' settings. Where C calls arrive and exceptions end.
// Knows neither PyTorch nor the CUDA runtime, and shows none of the driver's types.
#pragma once

#include "codes.hpp"
#include "settings.hpp"
#include "thread_settings.hpp"

#include <cstddef>
#include <memory>
#include <string>

struct CUstream_st; // what cudaStream_t and CUstream point to

namespace tms {

class Process {
public:
    /// The one of this library, made when first asked for. Never destroyed: PyTorch frees memory until the very end.
    static Process& instance();

    /// What the calling thread has set.
    static ThreadSettings& thread() noexcept;

    /// A line on the standard error output.
    static void say(const std::string& text);

    /// As cudaMalloc on `device`, for the thread's tag. Of 0 bytes there is none: null, and success.
    Code allocate(int device, std::size_t bytes, void** pointer) noexcept;
    /// Whether it is memory of a tag.
    [[nodiscard]] bool owns(const void* pointer) const noexcept;
    /// As cudaFree, of what it owns.
    Code free(void* pointer) noexcept;
    /// As cudaFreeAsync, of what it owns.
    Code free(void* pointer, CUstream_st* stream) noexcept;

    /// Memory of the device that is never paused, and anybody's.
    Code allocate_plain(int device, std::size_t bytes, void** pointer) noexcept;
    Code free_plain(int device, void* pointer) noexcept;

    /// Null and "" stand for every tag.
    Code pause(const char* tag) noexcept;
    Code resume(const char* tag) noexcept;
    const void* backup_of(const void* pointer, std::size_t bytes) noexcept;
    /// Gives back what nobody needs. Bytes.
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

    const std::string* const default_tag_;

    struct Core;
    const std::unique_ptr<Core> core_;
};

} // namespace tms
