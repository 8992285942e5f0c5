// Move-only owners of a driver's resources: addresses, pages, a mapping, a stream, an event, a file. One template; the
// kinds differ in how they are opened and closed.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <cstddef>

namespace memsaver::inline v0_3::detail {

/// Returns the driver's granularity: sizes and addresses of pages are multiples of it. Throws the error of a failing
/// driver call.
[[nodiscard]] inline std::size_t granularity_of(const AnyDriver& driver) {
    std::size_t granularity = 0;
    check(driver.granularity(granularity), "query the page granularity");
    return granularity;
}

/// Owns one resource of a driver, or nothing. Closes it on destruction; failures then are ignored. Plain data and cheap
/// to move: whoever owns it also owns an AnyDriver that outlives it. `Kind` provides
///
/// - `Value`: the resource; empty when value-initialized,
/// - `open(driver, value&, arguments...)` and `close(device, value)`, which return a Status,
/// - `closes_once`: whether the resource is gone even if closing fails. Otherwise it stays owned and close can be
///   retried.
template <class Kind>
class Owned {
public:
    using Value = typename Kind::Value;

    Owned() = default;
    Owned(Owned&& other) noexcept : device_{other.device_}, value_{other.value_} { other.forget(); }
    Owned& operator=(Owned&& other) noexcept {
        if (this == &other) return *this;
        (void)close();
        device_ = other.device_;
        value_ = other.value_;
        other.forget();
        return *this;
    }
    ~Owned() { (void)close(); }

    /// Opens a resource into an empty `*this`; on failure `*this` stays empty.
    template <class... Arguments>
    Status open(const AnyDriver& driver, const Arguments&... arguments) noexcept {
        Value value{};
        const Status status = Kind::open(driver, value, arguments...);
        if (!status.ok()) return status;
        device_ = &driver.machine();
        value_ = value;
        return status;
    }
    /// Returns ok if nothing is owned.
    Status close() noexcept {
        if (device_ == nullptr) return {};
        const Status status = Kind::close(*device_, value_);
        if (!status.ok() && !Kind::closes_once) return status;
        forget();
        return status;
    }

    [[nodiscard]] bool owns() const noexcept { return device_ != nullptr; }
    /// Empty if nothing is owned.
    [[nodiscard]] const Value& get() const noexcept { return value_; }

private:
    void forget() noexcept {
        device_ = nullptr;
        value_ = {};
    }

    Device* device_ = nullptr;
    Value value_{};
};

/// Addresses without memory: `open(driver, bytes, alignment)`.
struct AddressKind {
    using Value = Range;
    static constexpr bool closes_once = false;
    static Status open(const AnyDriver& driver, Range& range, std::size_t bytes, std::size_t alignment) noexcept {
        range.bytes = bytes;
        Status status = driver.reserve(bytes, alignment, range.address);
        // No memory is reserved with addresses, so a driver that reports a lack of it means the addresses.
        if (status.kind == StatusKind::out_of_memory) status.kind = StatusKind::out_of_addresses;
        return status;
    }
    static Status close(Device& device, Range range) noexcept { return device.unreserve(range.address, range.bytes); }
};
using Reservation = Owned<AddressKind>;

/// One handle of physical pages: `open(driver, bytes)`. The pages return to the device when the handle is released
/// *and* every mapping of it is unmapped.
struct PagesKind {
    struct Value {
        PageHandle handle{};
        std::size_t bytes = 0;
    };
    static constexpr bool closes_once = false;
    static Status open(const AnyDriver& driver, Value& pages, std::size_t bytes) noexcept {
        pages.bytes = bytes;
        return driver.create(bytes, pages.handle);
    }
    static Status close(Device& device, const Value& pages) noexcept { return device.release(pages.handle); }
};
using OwnedPages = Owned<PagesKind>;

/// The mapping of a whole handle at a range: `open(driver, range, handle)`. Access is granted by a separate call.
/// Unmapping does not wait for work on the device: the caller must have waited.
struct MappingKind {
    using Value = Range;
    static constexpr bool closes_once = false;
    static Status open(const AnyDriver& driver, Range& mapped, Range range, PageHandle handle) noexcept {
        mapped = range;
        return driver.map(range.address, range.bytes, handle);
    }
    static Status close(Device& device, Range range) noexcept { return device.unmap(range.address, range.bytes); }
};
using Mapping = Owned<MappingKind>;

/// A stream; closing it does not wait for its work.
struct StreamKind {
    using Value = StreamRef;
    static constexpr bool closes_once = true;
    static Status open(const AnyDriver& driver, StreamRef& stream) noexcept { return driver.open_stream(stream); }
    static Status close(Device& device, StreamRef stream) noexcept { return device.close_stream(stream); }
};
using OwnedStream = Owned<StreamKind>;

/// An event on the device of a stream: `open(driver, near)`.
struct MarkKind {
    using Value = EventRef;
    static constexpr bool closes_once = true;
    static Status open(const AnyDriver& driver, EventRef& event, StreamRef near = {}) noexcept {
        return driver.open_event(near, event);
    }
    static Status close(Device& device, EventRef event) noexcept { return device.close_event(event); }
};
using OwnedEvent = Owned<MarkKind>;

/// A file without a name, `open(driver, directory)`, or an existing file, `open(driver, path, direct)`.
struct FileKind {
    using Value = FileRef;
    static constexpr bool closes_once = true;
    static Status open(const AnyDriver& driver, FileRef& file, const char* directory) noexcept {
        return driver.open_file(directory, file);
    }
    static Status open(const AnyDriver& driver, FileRef& file, const char* path, bool direct) noexcept {
        return driver.open_source(path, direct, file);
    }
    static Status close(Device& device, FileRef file) noexcept { return device.close_file(file); }
};
using OwnedFile = Owned<FileKind>;

/// Calls `act(stream)`, which puts work on a stream of its own, and waits for that work. Returns the first failure.
/// Sets `busy` if the work may still run.
inline Status on_own_stream(const AnyDriver& driver, FunctionRef<Status(StreamRef)> act,
                            bool* busy = nullptr) noexcept {
    OwnedStream stream;
    OwnedEvent event;
    Status first = stream.open(driver);
    if (first.ok()) first = event.open(driver, stream.get());
    if (!first.ok()) return first;
    first = act(stream.get());
    const Status marked = driver.record(event.get(), stream.get());
    const Status passed = marked.ok() ? driver.wait(event.get()) : driver.drain();
    if (!passed.ok()) { // nothing may use the host's bytes any more
        const Status drained = driver.drain();
        if (busy != nullptr) *busy = !drained.ok() && drained.kind != StatusKind::gone;
    }
    (void)note_first(first, marked);
    (void)note_first(first, passed);
    return first;
}

} // namespace memsaver::inline v0_3::detail
