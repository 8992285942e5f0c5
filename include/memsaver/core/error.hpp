// The library's exceptions, and `check`, which turns a Status into one. Knows nothing about memory: callers describe
// the attempted operation as text.
#pragma once

#include "memsaver/core/event.hpp"
#include "memsaver/core/form.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/core/text.hpp"
#include "memsaver/core/usage.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A source location. clang 14 lacks std::source_location; these builtins are available in all supported compilers.
struct SourcePlace {
    const char* file = "";
    const char* function = "";
    unsigned line = 0;

    /// As a default argument: the location of the call that omitted it.
    static constexpr SourcePlace here(const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
                                      unsigned line = static_cast<unsigned>(__builtin_LINE())) noexcept {
        return {file, function, line};
    }

    /// "engine.cpp:17". Paths of the library's own files start at "memsaver/". Empty if no location is set.
    [[nodiscard]] std::string text() const;
    /// Returns whether the location is in one of the library's own files.
    [[nodiscard]] bool internal() const noexcept;
};

} // namespace detail

// The exceptions have default visibility, so that an exception thrown by a library compiled with -fvisibility=hidden
// can be caught by type in another library.

/// The interface of every exception that this library throws. It is separate from the standard exception classes:
/// OutOfMemory is also a std::bad_alloc, all others are also std::runtime_error, and `catch (const std::exception&)`
/// catches every one of them.
class [[gnu::visibility("default")]] Error {
public:
    virtual ~Error() = default;

    /// The attempted operation and the reason for its failure.
    [[nodiscard]] virtual const char* what() const noexcept = 0;
    /// The tag concerned; empty if there is none or if several tags are concerned.
    [[nodiscard]] const std::string& tag() const noexcept { return facts_->tag; }
    /// The status that the driver returned; `ok()` if no driver call failed. Out of memory, too, if the capacity of a
    /// tag is used up.
    [[nodiscard]] Status status() const noexcept { return facts_->status; }
    /// The work that a pause, resume or trim completed before it failed; empty for other calls. Pages of earlier
    /// operations that a pause releases first do not count if it fails before it releases its own.
    [[nodiscard]] const Report& report() const noexcept { return facts_->report; }

    /// The holders of device memory, if a saver throws OutOfMemory or NotIdle: one row for each tag and device with
    /// memory. Otherwise empty.
    [[nodiscard]] const std::vector<Holder>& holders() const noexcept { return facts_->holders; }

    /// The source line that attempted the failed driver call, for bug reports: "memsaver/arena/arena_core.hpp:205".
    /// Empty if no driver call failed.
    [[nodiscard]] std::string place() const { return facts_->place.text(); }

    /// Sets the source line that attempted the failed call.
    void attach(const detail::SourcePlace& place) noexcept { facts_->place = place; }
    /// Replaces the report of this exception and of all its copies.
    void attach(Report report) { facts_->report = std::move(report); }
    void attach(std::vector<Holder> holders) { facts_->holders = std::move(holders); }
    /// Appends to the text. Strong exception guarantee: may throw std::bad_alloc and then changes nothing.
    virtual void append(const std::string& text) = 0;
    /// Names the tag concerned, unless a tag has already been named.
    void attach_tag(const std::string& tag) {
        if (facts_->tag.empty()) facts_->tag = tag;
    }

protected:
    explicit Error(Status status) : facts_{detail::new_shared<Facts>(Facts{{}, status, {}, {}, {}})} {}
    Error(const Error&) noexcept = default; // never moved: an exception always has its facts
    Error& operator=(const Error&) noexcept = default;

private:
    struct Facts {
        std::string tag;
        Status status;
        Report report;
        detail::SourcePlace place;
        std::vector<Holder> holders;
    };
    std::shared_ptr<Facts> facts_; // shared by copies, so that copying an exception does not throw
};

/// The device is out of memory, even after unused memory was released. Nothing changed; the same call succeeds once
/// enough memory is free.
class [[gnu::visibility("default")]] OutOfMemory : public Error, public std::bad_alloc {
public:
    OutOfMemory(const std::string& what, std::size_t needed_bytes, std::size_t free_bytes, Status status = {})
        : Error{status}, text_{what}, needed_bytes_{needed_bytes}, free_bytes_{free_bytes} {}

    [[nodiscard]] const char* what() const noexcept override { return text_.what(); }
    void append(const std::string& text) override { text_ = std::runtime_error{text_.what() + text}; }
    /// The device that refused; -1 if that is unknown.
    [[nodiscard]] int device() const noexcept { return device_; }
    /// For who knows it.
    void attach_device(int device) noexcept { device_ = device; }
    /// Physical bytes requested from the device that refused.
    [[nodiscard]] std::size_t needed_bytes() const noexcept { return needed_bytes_; }
    /// Physical bytes that were free on the device when queried after the failure.
    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_; }

private:
    std::runtime_error text_;
    std::size_t needed_bytes_;
    std::size_t free_bytes_;
    int device_ = -1;
};

namespace detail {

/// The base class of all exceptions except OutOfMemory.
// clang-format off
class [[gnu::visibility("default")]] RuntimeError : public Error, public std::runtime_error {
public:
    explicit RuntimeError(const std::string& what, Status status = {}) : Error{status}, std::runtime_error{what} {}
    [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }
    void append(const std::string& text) override {
        static_cast<std::runtime_error&>(*this) = std::runtime_error{std::runtime_error::what() + text};
    }
};
// clang-format on

} // namespace detail

/// The host is out of memory. Memory that was to be paused is still active; memory that was to be resumed is still
/// paused.
class [[gnu::visibility("default")]] OutOfHostMemory : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The process is out of addresses, or at its limit of mappings; the text names the limit if the system tells. Nothing
/// changed. Device memory may be free: nobody is asked for room or paused because of this.
class [[gnu::visibility("default")]] OutOfAddresses : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The device or its context is lost. Backups stay readable, and `close()` still works.
class [[gnu::visibility("default")]] DeviceLost : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// A driver call failed for any other reason.
class [[gnu::visibility("default")]] DriverError : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// There is no usable device or driver, or the machine lacks a requested feature; the text names it.
class [[gnu::visibility("default")]] Unavailable : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// A source file no longer matches the file from which the bytes were loaded: it was replaced, written to or truncated.
/// The text names the file. The memory is unchanged: a resume that throws this leaves its tag paused.
class [[gnu::visibility("default")]] SourceChanged : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// Thrown if backup bytes are not the bytes that were saved. The memory is still paused; no part of it was resumed.
class [[gnu::visibility("default")]] BackupDamaged : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The timeout expired while the device was still busy or a tag was still in use. Nothing changed.
class [[gnu::visibility("default")]] NotIdle : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// An invalid argument, or a call in the wrong state. The text gives the reason, the tag, the pointer and the size.
class [[gnu::visibility("default")]] Misuse : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// A description of the attempted operation, and the source line that attempted it. Converts from a literal, so that
/// `check(status, "map pages")` records the line of the call.
struct Attempt {
    // NOLINTNEXTLINE(google-explicit-constructor): the conversion is the point
    constexpr Attempt(const char* text, detail::SourcePlace at = detail::SourcePlace::here()) noexcept
        : what{text}, place{at} {}

    const char* what;
    detail::SourcePlace place;
};

/// Throws the exception that corresponds to `status`, with `detail` in its text. `needed_bytes` and `free_bytes` are
/// stored in an OutOfMemory.
[[noreturn, gnu::cold]] void raise(const Status& status, const Attempt& attempt, const std::string& detail = {},
                                   std::size_t needed_bytes = 0, std::size_t free_bytes = 0);

/// Returns if `status` is ok; otherwise throws the corresponding exception. For driver calls in policies and programs.
void check(const Status& status, const Attempt& attempt);

/// The same, with the size in bytes and the address in the text.
void check(const Status& status, const Attempt& attempt, std::size_t bytes, std::uintptr_t address);

namespace detail {

/// "map pages (2.00 MiB at 0x...) failed: CUDA_ERROR_INVALID_VALUE (1)", plus the source line if it is outside the
/// library.
std::string failure_text(const Status& status, const Attempt& attempt, const std::string& detail = {});

/// As `raise`, with the text's parts.
[[noreturn, gnu::cold]] void raise_of(const Status& status, const Attempt& attempt, Bits detail,
                                      std::size_t needed_bytes = 0, std::size_t free_bytes = 0);

// Throw an error of that kind with this text. One about a tag carries the tag's name. What throws is data at the place
// that throws: one call.
[[noreturn, gnu::cold]] void misuse(Bits text);
[[noreturn, gnu::cold]] void misuse(const Status& status, Bits text);
[[noreturn, gnu::cold]] void misuse_of(const std::string& tag, Bits text);
[[noreturn, gnu::cold]] void not_idle(Bits text);
[[noreturn, gnu::cold]] void out_of_host_memory(Bits text);
[[noreturn, gnu::cold]] void unavailable(Bits text, Status status = {});

/// Throws Misuse such as "HostBackup::threads is 0; valid: 1 to 1024".
[[noreturn]] void refuse_option(const char* option, const std::string& value, const std::string& valid);

/// `end`: the number of enumerators.
template <class Enumeration>
void require_enumerator(const char* option, Enumeration value, int end) {
    const auto number = static_cast<long long>(value);
    if (number < 0 || number >= end)
        refuse_option(option, text_of({in_digits(number)}), text_of({"the enumerators, 0 to ", in_digits(end - 1)}));
}

/// Reports that a call failed whose failure cannot be thrown, as `ignored`.
[[gnu::cold]] void tell_ignored(const EventSink& sink, std::string_view tag, int device, const Status& status,
                                const char* what) noexcept;

/// Adds the tag's name to an exception of an operation on that tag.
void name_tag(Error& error, const std::string& tag) noexcept;

/// Throws OutOfHostMemory in place of std::bad_alloc.
[[noreturn, gnu::cold]] void raise_no_host_memory();

// For a handler of all exceptions: throws the one that is being handled again. One place for each way to change it,
// instead of handlers at each call.
/// An error that names no tag gets this one.
[[noreturn, gnu::cold]] void rethrow_naming(const std::string& tag);
/// The host's std::bad_alloc becomes OutOfHostMemory.
[[noreturn, gnu::cold]] void rethrow_translated();

/// Returns the result of `act()`. An error that names no tag gets this one.
template <class Act>
decltype(auto) naming(const std::string& tag, Act&& act) {
    try {
        return act();
    } catch (...) {
        rethrow_naming(tag);
    }
}

/// Returns the result of `act()`, and turns the host's std::bad_alloc into OutOfHostMemory. Used once at each public
/// boundary. Work that was already done is not rolled back.
template <class Act>
decltype(auto) translated(Act&& act) {
    try {
        return act();
    } catch (...) {
        rethrow_translated();
    }
}

/// Returns `error` with this tag's name.
template <class E>
E about_tag(const std::string& tag, E error) noexcept {
    name_tag(error, tag);
    return error;
}

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/error.ipp"
#endif
