// AnyDriver: the handle of a machine. The core of the library is plain classes over it.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/driver/device_calls.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// A machine: cheap to copy, never empty (a move copies), equal if both share the Device or `Device::equals` says so.
/// `CudaDriver`, `HostDriver` and `FaultyDriver` derive from it and add only how their machine is made and what it has
/// beyond a Device, so that any of them can be passed where an AnyDriver is wanted. The methods are those of Device,
/// which documents them. Thread-safe.
class AnyDriver {
public:
    /// For a machine of the program's own: `AnyDriver{std::make_shared<MyMachine>()}`. Throws Misuse for null.
    explicit AnyDriver(std::shared_ptr<Device> device) : device_{std::move(device)} {
        if (device_ == nullptr) detail::misuse({"AnyDriver: the device is null"});
    }
    AnyDriver(const AnyDriver&) noexcept = default;
    AnyDriver& operator=(const AnyDriver&) noexcept = default;
    ~AnyDriver() = default;

    // A member: as a friend it would be asked about each class with AnyDriver in its name, such as
    // FaultyDriver<AnyDriver>.
    bool operator==(const AnyDriver& other) const noexcept {
        return device_ == other.device_ || device_->equals(*other.device_);
    }
    /// This driver as a D, if its machine is one of a D; with what only a D has. To find out what a machine can do, ask
    /// `features()`: another machine may stand around the one you know.
    template <class D>
    requires std::derived_from<D, AnyDriver>
    [[nodiscard]] std::optional<D> as() const {
        if constexpr (std::same_as<D, AnyDriver>) {
            return *this;
        } else {
            return D::from(*this);
        }
    }
    /// The machine behind this handle.
    [[nodiscard]] Device& machine() const noexcept { return *device_; }

    [[nodiscard]] int device() const noexcept { return device_->device(); }
    [[nodiscard]] std::string name() const { return device_->name(); }
    [[nodiscard]] Features features() const noexcept { return device_->features(); }
    Status identity(std::string& text) const noexcept { return device_->identity(text); }
    [[nodiscard]] int numa_node() const noexcept { return device_->numa_node(); }
    /// Returns whether the host can access device memory at its addresses. Stream work is then done by the thread that
    /// waits for it, and host code may do the rest.
    [[nodiscard]] bool host_addressable() const noexcept { return features().host_addressable; }
    [[nodiscard]] Neighbours* neighbours() const noexcept { return device_->neighbours(); }
    [[nodiscard]] std::string holders() const { return device_->holders(); }
    Status with_context(detail::FunctionRef<void()> work) const noexcept { return device_->with_context(work); }
    void name_addresses(Address address, std::size_t bytes, const char* name) const noexcept {
        device_->name_addresses(address, bytes, name);
    }

    Status owns_event(EventRef event, bool& yes) const noexcept { return device_->owns_event(event, yes); }
    Status drop(Address address, std::size_t bytes, PageHandle pages, bool& unmapped) const noexcept {
        return device_->drop(address, bytes, pages, unmapped);
    }

#define MEMSAVER_FORWARD(name, parameters, arguments, ...)                                                             \
    Status name parameters const noexcept { return device_->name arguments; }
    MEMSAVER_MACHINE_CALLS(MEMSAVER_FORWARD, MEMSAVER_FORWARD)
    MEMSAVER_SYSTEM_CALLS(MEMSAVER_FORWARD)
#undef MEMSAVER_FORWARD

private:
    std::shared_ptr<Device> device_;
};

namespace detail {

/// Enqueues one copy between the device and host memory.
inline Status copy(const AnyDriver& driver, Direction direction, const CopyPart& part, StreamRef stream) noexcept {
    const bool out = direction == Direction::out;
    auto* const host = reinterpret_cast<void*>(out ? part.to : part.from); // NOLINT(performance-no-int-to-ptr)
    return out ? driver.copy_to_host(host, part.from, part.bytes, stream)
               : driver.copy_to_device(part.to, host, part.bytes, stream);
}

/// Returns whether the stream is being captured. Throws the exception for a failing driver call; the text names the
/// stream and the device. Such a stream usually belongs to another device or is closed.
[[nodiscard]] inline bool being_captured(const AnyDriver& driver, StreamRef stream) {
    bool yes = false;
    if (const Status status = driver.capturing(stream, yes); !status.ok()) {
        raise_of(
            status, "query whether a stream is being captured",
            {"stream ", in_hex(stream.native()), "; is it an open stream of device ", in_digits(driver.device()), "?"});
    }
    return yes;
}

} // namespace detail

/// What MemorySaver, TaggedArena and FaultyDriver accept: AnyDriver, or a handle derived from it. A machine of a
/// program's own derives from Device and is put into a handle.
template <class D>
concept Driver = std::derived_from<D, AnyDriver> && std::copyable<D>;

} // namespace memsaver::inline v0_3
