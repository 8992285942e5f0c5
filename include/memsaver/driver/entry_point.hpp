// Entry points of libraries that are loaded at run time. Knows nothing about what they do.
#pragma once

#include <dlfcn.h>

namespace memsaver::inline v0_3::detail {

/// Converts to a pointer to a function of the type it is assigned to; null if there is none.
struct EntryPoint {
    void* address = nullptr;

    EntryPoint() = default;
    explicit EntryPoint(void* at) noexcept : address{at} {}
    /// What a loaded library has by this name.
    EntryPoint(void* library, const char* name) noexcept
        : address{library != nullptr ? ::dlsym(library, name) : nullptr} {}

    template <class F>
    operator F*() const noexcept { // NOLINT(google-explicit-constructor): the conversion is the point
        return reinterpret_cast<F*>(address);
    }
};

} // namespace memsaver::inline v0_3::detail
