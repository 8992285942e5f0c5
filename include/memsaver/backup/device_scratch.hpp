// Device memory of a slot's own, beside the pages that it saves and brings back. Does not know what it is for.
#pragma once

#include "memsaver/driver/owned.hpp"

#include <atomic>
#include <cstddef>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

/// Taken and given back like any other pages. `held_bytes`, `wanted_bytes` and `want` at any time; the rest by whoever
/// has the slot's operation. Gives back what it has when it dies.
class DeviceScratch {
public:
    explicit DeviceScratch(AnyDriver driver) : driver_{std::move(driver)} {}
    DeviceScratch(const DeviceScratch&) = delete;
    DeviceScratch& operator=(const DeviceScratch&) = delete;
    ~DeviceScratch() { (void)give(); }

    /// Physical memory that it has.
    [[nodiscard]] std::size_t held_bytes() const noexcept { return held_.load(); }
    /// More that a restore of what is kept now would take.
    [[nodiscard]] std::size_t wanted_bytes() const noexcept;
    /// A restore needs so much in all, a multiple of the granularity.
    void want(std::size_t bytes) noexcept { wanted_.store(bytes); }

    /// Has what a restore needs. On failure it has nothing, unless what it had could not be given back.
    Status take() noexcept { return take(wanted_.load()); }
    /// Has at least so much.
    Status take(std::size_t bytes) noexcept;
    /// Gives everything back, but not while somebody uses it. What fails stays, to be tried again by the next call.
    Status give() noexcept;
    /// Mapped memory of at least `bytes`, or an empty range.
    [[nodiscard]] Range range(std::size_t bytes) const noexcept;
    /// Work that could not be waited for may still touch it: it is not given back before the device has been.
    void unsettle() noexcept { unsettled_ = true; }

    /// While one lives, the memory stays.
    class InUse {
    public:
        explicit InUse(DeviceScratch& scratch) noexcept : scratch_{scratch} { scratch_.users_ += 1; }
        InUse(const InUse&) = delete;
        InUse& operator=(const InUse&) = delete;
        ~InUse() { scratch_.users_ -= 1; }

    private:
        DeviceScratch& scratch_;
    };

private:
    Status open(std::size_t bytes) noexcept;

    AnyDriver driver_;
    Reservation addresses_; // in the order in which they are taken
    OwnedPages pages_;
    Mapping mapping_;
    bool ready_ = false; ///< mapped, and access allowed
    std::atomic<bool> unsettled_{false};
    std::atomic<std::size_t> users_{0};
    std::atomic<std::size_t> held_{0};
    std::atomic<std::size_t> wanted_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/device_scratch.ipp"
#endif
