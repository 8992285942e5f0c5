// The CUDA runtime used by the preload library: found in the process, in any version, never linked.
#pragma once

#include "codes.hpp"
#include "late_function.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>

namespace tms {

/// Finds the runtime's own functions. Programs load their runtime in many ways: linked, or late and privately, as
/// Python extensions do. Each first use therefore looks for it until it is found.
class RealRuntime {
public:
    /// Returns null if the process has not loaded a runtime yet.
    static void* address(const char* name) noexcept {
        if (void* const linked = ::dlsym(RTLD_NEXT, name)) return linked;
        void* const runtime = library();
        return runtime == nullptr ? nullptr : ::dlsym(runtime, name);
    }

private:
    static void* library() noexcept {
        static std::atomic<void*> found{nullptr};
        void* runtime = found.load();
        if (runtime == nullptr) {
            runtime = loaded();
            for (const char* name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}) {
                if (runtime == nullptr) runtime = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
            }
            found = runtime;
        }
        return runtime;
    }

    /// Returns the runtime that the process has already loaded.
    static void* loaded() noexcept {
        char path[4096] = {};
        ::dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* out) {
                const char* slash = std::strrchr(info->dlpi_name, '/');
                const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
                if (std::strncmp(name, "libcudart.so", 12) != 0) return 0;
                std::strncpy(static_cast<char*>(out), info->dlpi_name, sizeof path - 1);
                return 1;
            },
            path);
        return *path == '\0' ? nullptr : ::dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    }
};

template <class Function>
using RuntimeFunction = LateFunction<Function, RealRuntime::address>;

} // namespace tms
