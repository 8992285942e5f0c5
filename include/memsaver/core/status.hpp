// What a driver call answers: a kind to act on, and the native code to report.
// Below `check` (error.hpp) the library speaks in these; above it, in exceptions.
#pragma once

#include "memsaver/core/form.hpp"

#include <iosfwd>
#include <string>

namespace memsaver::inline v0_2 {

/// What an answer means to whoever gets it, on whatever machine.
enum class StatusKind : unsigned char {
    ok,                 ///< done
    out_of_memory,      ///< the device has no room; harmless, may be tried again
    out_of_host_memory, ///< the host has no room; harmless, may be tried again
    gone,               ///< the device or its context is lost; nothing on it will work again
    unsupported,        ///< the machine has no such thing; nothing was tried
    other,              ///< anything else
};

/// The answer of one driver call. Trivial, never throws, must be looked at.
struct [[nodiscard]] Status {
    StatusKind kind = StatusKind::ok;
    int code = 0;          ///< the native code, 0 for success
    const char* name = ""; ///< the native code's name, with static storage

    /// Whether the call has done what it was asked for.
    [[nodiscard]] constexpr bool ok() const noexcept { return kind == StatusKind::ok; }
    friend constexpr bool operator==(const Status& a, const Status& b) noexcept {
        return a.kind == b.kind && a.code == b.code;
    }

    /// As `to_string`.
    friend std::ostream& operator<<(std::ostream& out, const Status& status);
};

/// As the texts of errors end: "CUDA_ERROR_INVALID_VALUE (1)". Where there is no native name, what the kind means, "out
/// of memory"; "ok" for success.
[[nodiscard]] std::string to_string(const Status& status);

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/status.ipp"
#endif
