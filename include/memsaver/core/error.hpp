// The exceptions, and `check`, which turns a Status into one.
// Knows nothing of memory: what was attempted arrives as text.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/core/usage.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// A place in source code. The standard's source_location is missing from clang 14; these builtins are everywhere.
struct SourcePlace {
    const char* file = "";
    const char* function = "";
    unsigned line = 0;

    /// As a default argument: the place of the call that left it out.
    static constexpr SourcePlace here(const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
                                      unsigned line = static_cast<unsigned>(__builtin_LINE())) noexcept {
        return {file, function, line};
    }

    /// "engine.cpp:17"; the library's own files without the folders that lead to them; empty for no place.
    [[nodiscard]] std::string text() const;
    /// Whether it is in the library's own files.
    [[nodiscard]] bool internal() const noexcept;
};

} // namespace detail

// Exceptions have default visibility, so that one thrown in a library compiled with -fvisibility=hidden is caught by
// its type in another.

/// What everything that this library throws can tell. An interface beside the standard's exceptions: OutOfMemory is
/// also a std::bad_alloc, the others are also std::runtime_error, and `catch (const std::exception&)` finds them all.
class [[gnu::visibility("default")]] Error {
public:
    virtual ~Error() = default;

    /// What was attempted, and what went wrong.
    [[nodiscard]] virtual const char* what() const noexcept = 0;
    /// The tag concerned; empty where none is, or several are.
    [[nodiscard]] const std::string& tag() const noexcept { return facts_->tag; }
    /// What the driver answered; `ok()` where no driver call failed.
    [[nodiscard]] Status status() const noexcept { return facts_->status; }
    /// What a pause, resume or trim had done before it failed; empty for other calls.
    [[nodiscard]] const Report& report() const noexcept { return facts_->report; }

    /// Who holds what, where a saver throws OutOfMemory or NotIdle: a row for each tag and device with memory. Else
    /// empty.
    [[nodiscard]] const std::vector<Holder>& holders() const noexcept { return facts_->holders; }

    /// The line that wanted the call that failed, "memsaver/arena/pages.ipp:205", for a report of a bug; empty where no
    /// driver call failed.
    [[nodiscard]] std::string place() const { return facts_->place.text(); }

    /// Notes the line that wanted the call that failed.
    void attach(const detail::SourcePlace& place) noexcept { facts_->place = place; }
    /// Gives the exception, and the copies that were made of it, another report.
    void attach(Report report) { facts_->report = std::move(report); }
    void attach(std::vector<Holder> holders) { facts_->holders = std::move(holders); }
    /// Puts more at the end of the text. May throw bad_alloc; then the text is as it was.
    virtual void append(const std::string& text) = 0;
    /// Names the tag concerned, unless one has been named before.
    void attach_tag(const std::string& tag) {
        if (facts_->tag.empty()) facts_->tag = tag;
    }

protected:
    explicit Error(Status status) : facts_{std::make_shared<Facts>(Facts{{}, status, {}, {}, {}})} {}
    Error(const Error&) noexcept = default; // never a move: an exception always has its facts
    Error& operator=(const Error&) noexcept = default;

private:
    struct Facts {
        std::string tag;
        Status status;
        Report report;
        detail::SourcePlace place;
        std::vector<Holder> holders;
    };
    std::shared_ptr<Facts> facts_; // shared by copies: copying an exception does not throw
};

/// The device has no room, though memory that nobody holds was taken first. Nothing changed; the same call succeeds
/// once there is room.
class [[gnu::visibility("default")]] OutOfMemory : public Error, public std::bad_alloc {
public:
    OutOfMemory(const std::string& what, std::size_t needed_bytes, std::size_t free_bytes, Status status = {})
        : Error{status}, text_{what}, needed_bytes_{needed_bytes}, free_bytes_{free_bytes} {}

    [[nodiscard]] const char* what() const noexcept override { return text_.what(); }
    void append(const std::string& text) override { text_ = std::runtime_error{text_.what() + text}; }
    /// Physical bytes that the call wanted to take, of the device that refused.
    [[nodiscard]] std::size_t needed_bytes() const noexcept { return needed_bytes_; }
    /// Physical bytes that were free on the device when it was asked after the failure.
    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_; }

private:
    std::runtime_error text_;
    std::size_t needed_bytes_;
    std::size_t free_bytes_;
};

namespace detail {

/// What all exceptions but OutOfMemory are.
class [[gnu::visibility("default")]] RuntimeError : public Error, public std::runtime_error{
    public : explicit RuntimeError(const std::string& what, Status status = {}) : Error{status},
    std::runtime_error{what} {} [[nodiscard]] const char* what()
        const noexcept override{return std::runtime_error::what();
}
void append(const std::string& text) override {
    static_cast<std::runtime_error&>(*this) = std::runtime_error{std::runtime_error::what() + text};
}
};

} // namespace detail

/// The host has no room. The memory concerned is still active.
class [[gnu::visibility("default")]] OutOfHostMemory : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The device or its context is lost. Backups stay readable, `close()` works.
class [[gnu::visibility("default")]] DeviceLost : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// A driver call failed in some other way.
class [[gnu::visibility("default")]] DriverError : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// There is no usable device or driver, or the machine lacks what was asked for; the text says what.
class [[gnu::visibility("default")]] Unavailable : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The file that bytes are to come from is not the one that they were loaded from: replaced, written to, or cut. The
/// text names it. The memory is as it was: a resume that throws this leaves its tag paused.
class [[gnu::visibility("default")]] SourceChanged : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The device was still at work, or a tag still in use, when the time allowed ran out. Nothing changed.
class [[gnu::visibility("default")]] NotIdle : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// The program asked for something that cannot be meant: the text says what, with which tag, pointer and size.
class [[gnu::visibility("default")]] Misuse : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// What was attempted, and the line that wanted it. Converts from a literal, so that `check(status, "map pages")`
/// notes its own line.
struct Attempt {
    // NOLINTNEXTLINE(google-explicit-constructor): the conversion is the point
    constexpr Attempt(const char* text, detail::SourcePlace at = detail::SourcePlace::here()) noexcept
        : what{text}, place{at} {}

    const char* what;
    detail::SourcePlace place;
};

/// Throws the exception that `status` stands for, `detail` in its text. `needed_bytes` and `free_bytes` go into an
/// OutOfMemory.
[[noreturn]] void raise(const Status& status, const Attempt& attempt, const std::string& detail = {},
                        std::size_t needed_bytes = 0, std::size_t free_bytes = 0);

/// Returns if `status` is ok; otherwise throws what it stands for. For drivers' calls, in policies and programs.
void check(const Status& status, const Attempt& attempt);

/// The same, with the bytes and the address concerned in the text.
void check(const Status& status, const Attempt& attempt, std::size_t bytes, std::uintptr_t address);

namespace detail {

/// "map pages (2.00 MiB at 0x...) failed: CUDA_ERROR_INVALID_VALUE (1)"; with the line, if it is not the library's own.
std::string failure_text(const Status& status, const Attempt& attempt, const std::string& detail = {});

/// An exception of an operation on one tag says which.
void name_tag(Error& error, const std::string& tag) noexcept;

/// Answers what `act()` answers; an error that names no tag names this one.
template <class Act>
decltype(auto) naming(const std::string& tag, Act&& act) {
    try {
        return act();
    } catch (Error& error) {
        name_tag(error, tag);
        throw;
    }
}

/// The same error, which names this tag.
template <class E>
E about_tag(const std::string& tag, E error) noexcept {
    name_tag(error, tag);
    return error;
}

/// Throws OutOfHostMemory for the language's std::bad_alloc.
[[noreturn]] void raise_no_host_memory();

/// Answers what `act()` answers; the host's std::bad_alloc becomes OutOfHostMemory. Stands once at each public
/// boundary. What had been done stands.
template <class Act>
decltype(auto) translated(Act&& act) {
    try {
        return act();
    } catch (const Error&) {
        throw;
    } catch (const std::bad_alloc&) {
        raise_no_host_memory();
    }
}

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/error.ipp"
#endif
