// The exceptions, and `check`, which turns a Status into one.
// Knows nothing of memory: what was attempted arrives as text.
#pragma once

#include "memsaver/base/report.hpp"
#include "memsaver/base/sizes.hpp"
#include "memsaver/base/source_place.hpp"
#include "memsaver/base/status.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

// Exceptions have default visibility, so that one thrown in a library compiled with -fvisibility=hidden is caught by
// its type in another.

/// The root of everything that this library throws.
class [[gnu::visibility("default")]] Error : public std::runtime_error {
public:
    explicit Error(const std::string& what, Status status = {}) : std::runtime_error{what}, status_{status} {}

    /// What the driver answered; `ok()` where no driver call failed.
    [[nodiscard]] Status status() const noexcept { return status_; }

    /// What a pause, resume or trim had done before it failed; empty for other calls.
    [[nodiscard]] const Report& report() const noexcept { return report_; }
    void attach(Report report) { report_ = std::move(report); }

private:
    Status status_;
    Report report_;
};

/// The device has no room. Nothing changed; the same call succeeds once there is room.
class [[gnu::visibility("default")]] OutOfMemory : public Error {
public:
    OutOfMemory(const std::string& what, std::size_t needed_bytes, std::size_t free_bytes, Status status = {})
        : Error{what, status}, needed_bytes_{needed_bytes}, free_bytes_{free_bytes} {}

    /// Physical bytes that the call wanted to take, of the device that refused.
    [[nodiscard]] std::size_t needed_bytes() const noexcept { return needed_bytes_; }
    /// Physical bytes that were free on the device when it was asked after the failure.
    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_; }

private:
    std::size_t needed_bytes_;
    std::size_t free_bytes_;
};

/// The host has no room. The memory concerned is still active.
class [[gnu::visibility("default")]] OutOfHostMemory : public Error {
    using Error::Error;
};

/// The device or its context is lost. Backups stay readable, `close()` works.
class [[gnu::visibility("default")]] DeviceLost : public Error {
    using Error::Error;
};

/// A driver call failed in some other way.
class [[gnu::visibility("default")]] DriverError : public Error {
    using Error::Error;
};

/// There is no usable device or driver; the text says why.
class [[gnu::visibility("default")]] Unavailable : public Error {
    using Error::Error;
};

/// The device was still at work when the time allowed ran out. Nothing changed.
class [[gnu::visibility("default")]] NotIdle : public Error {
    using Error::Error;
};

/// The program asked for something that cannot be meant: the text says what, with which tag, pointer and size.
class [[gnu::visibility("default")]] Misuse : public Error {
    using Error::Error;
};

/// What was attempted, and the line that wanted it. Converts from a literal, so that `check(status, "map pages")`
/// notes its own line.
struct Attempt {
    // NOLINTNEXTLINE(google-explicit-constructor): the conversion is the point
    constexpr Attempt(const char* text, SourcePlace at = SourcePlace::here()) noexcept : what{text}, place{at} {}

    const char* what;
    SourcePlace place;
};

/// "map pages (2.00 MiB at 0x...) failed: CUDA_ERROR_INVALID_VALUE (1) [file:line]".
inline std::string failure_text(const Status& status, const Attempt& attempt, const std::string& detail = {}) {
    std::string text = attempt.what;
    if (!detail.empty()) text += " (" + detail + ")";
    text += std::string{" failed: "} + (*status.name != '\0' ? status.name : "error") + " (" +
            std::to_string(status.code) + ") [" + attempt.place.text() + "]";
    return text;
}

/// Throws the exception that `status` stands for. `needed` and `free` go into an OutOfMemory.
[[noreturn]] inline void raise(const Status& status, const Attempt& attempt, const std::string& detail = {},
                               std::size_t needed_bytes = 0, std::size_t free_bytes = 0) {
    const std::string text = failure_text(status, attempt, detail);
    switch (status.kind) {
    case StatusKind::out_of_memory: throw OutOfMemory{text, needed_bytes, free_bytes, status};
    case StatusKind::out_of_host_memory: throw OutOfHostMemory{text, status};
    case StatusKind::gone: throw DeviceLost{text, status};
    case StatusKind::ok:
    case StatusKind::other: break;
    }
    throw DriverError{text, status};
}

/// Returns if `status` is ok; otherwise throws what it stands for.
inline void check(const Status& status, const Attempt& attempt) {
    if (!status.ok()) raise(status, attempt);
}

/// The same, with the bytes and the address concerned in the text.
inline void check(const Status& status, const Attempt& attempt, std::size_t bytes, std::uintptr_t address) {
    if (!status.ok()) raise(status, attempt, format_bytes(bytes) + " at " + format_address(address), bytes);
}

} // namespace memsaver::inline v0_1
