// The result of a driver call: a kind to act on, and the native error code to report. Below `check` (error.hpp) the
// library reports errors as Status; above it, as exceptions.
#pragma once

#include "memsaver/core/form.hpp"

#include <iosfwd>
#include <string>

namespace memsaver::inline v0_3 {

/// The portable meaning of a status.
enum class StatusKind : unsigned char {
    ok,                 ///< success
    out_of_memory,      ///< the device is out of memory; harmless, may be retried
    out_of_host_memory, ///< the host is out of memory; harmless, may be retried
    out_of_addresses,   ///< the process may have no more addresses or mappings; freeing memory of others does not help
    gone,               ///< the device or its context is lost; no further call on it will succeed
    unsupported,        ///< the machine lacks the feature; nothing was attempted
    other,              ///< any other error
};

/// The result of one driver call. Trivial, never throws, must not be ignored.
struct [[nodiscard]] Status {
    StatusKind kind = StatusKind::ok;
    int code = 0;          ///< the native code, 0 for success
    const char* name = ""; ///< name of the native code, with static storage duration

    /// Returns whether the call succeeded.
    [[nodiscard]] constexpr bool ok() const noexcept { return kind == StatusKind::ok; }
    friend constexpr bool operator==(const Status& a, const Status& b) noexcept {
        return a.kind == b.kind && a.code == b.code;
    }

    /// Prints `to_string(status)`.
    friend std::ostream& operator<<(std::ostream& out, const Status& status);
};

/// The text at the end of error messages: "CUDA_ERROR_INVALID_VALUE (1)". Without a native name, a description of the
/// kind, such as "out of memory"; "ok" for success.
[[nodiscard]] std::string to_string(const Status& status);

namespace detail {

/// Keeps the first failure. Returns whether `status` is ok.
inline bool note_first(Status& first, const Status& status) noexcept {
    if (first.ok()) first = status;
    return status.ok();
}

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/status.ipp"
#endif
