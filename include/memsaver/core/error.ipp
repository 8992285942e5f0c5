// Definitions of error.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstring>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE void raise(const Status& status, const Attempt& attempt, const std::string& detail,
                           std::size_t needed_bytes, std::size_t free_bytes) {
    const std::string text = detail::failure_text(status, attempt, detail);
    const auto from = [&](auto error) {
        error.attach(attempt.place);
        return error;
    };
    switch (status.kind) {
    case StatusKind::out_of_memory: throw from(OutOfMemory{text, needed_bytes, free_bytes, status});
    case StatusKind::out_of_host_memory: throw from(OutOfHostMemory{text, status});
    case StatusKind::out_of_addresses: throw from(OutOfAddresses{text, status});
    case StatusKind::gone: throw from(DeviceLost{text, status});
    case StatusKind::unsupported: throw from(Unavailable{text, status});
    case StatusKind::ok:
    case StatusKind::other: break;
    }
    throw from(DriverError{text, status});
}

MEMSAVER_INLINE void check(const Status& status, const Attempt& attempt) {
    if (!status.ok()) raise(status, attempt);
}

MEMSAVER_INLINE void check(const Status& status, const Attempt& attempt, std::size_t bytes, std::uintptr_t address) {
    if (!status.ok())
        detail::raise_of(status, attempt, {detail::in_bytes(bytes), " at ", detail::in_hex(address)}, bytes);
}

namespace detail {

MEMSAVER_INLINE bool SourcePlace::internal() const noexcept {
    constexpr std::string_view here = __FILE__; // headers may be installed anywhere
    constexpr std::string_view folder = here.substr(0, here.size() - std::string_view{"core/error.ipp"}.size());
    return std::string_view{file}.starts_with(folder) || std::strstr(file, "include/memsaver/") != nullptr;
}

MEMSAVER_INLINE std::string SourcePlace::text() const {
    if (line == 0) return {};
    const char* inside = std::strstr(file, "memsaver/");
    for (const char* next = inside; next != nullptr; next = std::strstr(next + 1, "memsaver/")) inside = next;
    return text_of({inside != nullptr ? inside : file, ":", in_digits(line)});
}

MEMSAVER_INLINE std::string failure_text(const Status& status, const Attempt& attempt, const std::string& detail) {
    std::string text = attempt.what;
    if (!detail.empty()) text += text_of({" (", detail, ")"});
    text += text_of({" failed: ", status.ok() ? "error" : to_string(status)});
    if (status.kind == StatusKind::out_of_addresses)
        text += "; the process is out of addresses, whatever memory is free";
    if (status.kind == StatusKind::gone)
        text += ": the device is lost, by this call or before it; backups stay readable, and close() works";
    if (!attempt.place.internal()) text += text_of({" [", attempt.place.text(), "]"});
    return text;
}

MEMSAVER_INLINE void raise_of(const Status& status, const Attempt& attempt, Bits detail, std::size_t needed_bytes,
                              std::size_t free_bytes) {
    raise(status, attempt, text_of(detail), needed_bytes, free_bytes);
}

MEMSAVER_INLINE void misuse(Bits text) { misuse(Status{}, text); }

MEMSAVER_INLINE void misuse(const Status& status, Bits text) { throw Misuse{text_of(text), status}; }

MEMSAVER_INLINE void misuse_of(const std::string& tag, Bits text) { throw about_tag(tag, Misuse{text_of(text)}); }

MEMSAVER_INLINE void not_idle(Bits text) { throw NotIdle{text_of(text)}; }

MEMSAVER_INLINE void out_of_host_memory(Bits text) { throw OutOfHostMemory{text_of(text)}; }

MEMSAVER_INLINE void unavailable(Bits text, Status status) { throw Unavailable{text_of(text), status}; }

MEMSAVER_INLINE void refuse_option(const char* option, const std::string& value, const std::string& valid) {
    misuse({option, " is ", value, "; valid: ", valid});
}

MEMSAVER_INLINE void tell_ignored(const EventSink& sink, std::string_view tag, int device, const Status& status,
                                  const char* what) noexcept {
    if (!sink) return;
    try {
        tell(sink, EventKind::ignored, tag, device, {failure_text(status, what)});
    } catch (const std::bad_alloc&) { // as an exception of the sink
    }
}

MEMSAVER_INLINE void name_tag(Error& error, const std::string& tag) noexcept {
    try {
        error.attach_tag(tag);
    } catch (const std::bad_alloc&) { // out of host memory: the error stays without a tag
    }
}

MEMSAVER_INLINE void rethrow_naming(const std::string& tag) {
    try {
        throw;
    } catch (Error& error) {
        name_tag(error, tag);
        throw;
    }
}

MEMSAVER_INLINE void rethrow_translated() {
    try {
        throw;
    } catch (const Error&) { // OutOfMemory is a std::bad_alloc too
        throw;
    } catch (const std::bad_alloc&) {
        raise_no_host_memory();
    }
}

MEMSAVER_INLINE void raise_no_host_memory() {
    throw OutOfHostMemory{"out of host memory for the library's own data structures; completed work is kept, and the "
                          "same call continues it (a limit of the process may be the reason: RLIMIT_AS, RLIMIT_DATA, "
                          "vm.max_map_count)"};
}

} // namespace detail

} // namespace memsaver::inline v0_3
