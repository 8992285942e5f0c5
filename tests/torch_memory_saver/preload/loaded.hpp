// The libraries, loaded by name as a program would. For tests that run with the preload library, or that load one.
#pragma once

#include <doctest/doctest.h>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace test {

/// Returns the function `name` of a library, or of the process.
template <class Function>
Function* symbol(const char* name, void* library = RTLD_DEFAULT) {
    void* const found = ::dlsym(library, name);
    REQUIRE_MESSAGE(found != nullptr, name);
    return reinterpret_cast<Function*>(found);
}

/// torch_memory_saver's interface, in this process.
struct Interface {
    explicit Interface(void* library = RTLD_DEFAULT) : library_{library} {}

    void region(bool on) const { symbol<void(bool)>("tms_set_interesting_region", library_)(on); }
    void tag(const char* tag) const { symbol<void(const char*)>("tms_set_current_tag", library_)(tag); }
    void cpu_backup(bool on) const { symbol<void(bool)>("tms_set_enable_cpu_backup", library_)(on); }
    /// The calling thread's allocations go to a tag, until `leave`.
    void enter(const char* name, bool kept = true) const { region(true), tag(name), cpu_backup(kept); }
    void leave() const { region(false), cpu_backup(false); }
    int pause(const char* tag = nullptr) const { return symbol<int(const char*)>("tms_pause", library_)(tag); }
    int resume(const char* tag = nullptr) const { return symbol<int(const char*)>("tms_resume", library_)(tag); }
    const unsigned char* backup(const void* at, std::size_t bytes) const {
        return symbol<const unsigned char*(const void*, std::uint64_t)>("tms_get_cpu_backup_pointer", library_)(at,
                                                                                                                bytes);
    }

private:
    void* library_;
};

inline constexpr std::size_t mib = std::size_t{1} << 20;

/// Returns the number of calls of cuMemAlloc.
inline unsigned long plain_calls() {
    static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    return symbol<unsigned long()>("host_libcuda_plain_calls", driver)();
}

/// Returns the free bytes of the first device, queried from the driver as a program would.
inline std::size_t free_bytes() {
    static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(driver != nullptr);
    void* found = nullptr;
    symbol<int(const char*, void**, int, std::uint64_t, void*)>("cuGetProcAddress_v2", driver)("cuMemGetInfo", &found,
                                                                                               3020, 0, nullptr);
    std::size_t free = 0;
    std::size_t total = 0;
    reinterpret_cast<int (*)(std::size_t*, std::size_t*)>(found)(&free, &total);
    return free;
}
} // namespace test
