// The owner of one pinned host buffer, for bytes on their way.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/memory/settle.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns host pages that are taken and, if the driver lets it, pinned; or nothing. Move-only.
template <HostPages D>
class PinnedBuffer {
public:
    PinnedBuffer() = default;
    /// Throws OutOfHostMemory, or what else a failing call stands for.
    PinnedBuffer(const D& driver, std::size_t bytes) : PinnedBuffer{} { // so that what has been taken is given back
        if (const Status status = take(driver, bytes); !status.ok())
            raise(status, "take host pages", format_bytes(bytes));
    }
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        PinnedBuffer{std::move(other)}.swap(*this);
        return *this;
    }
    ~PinnedBuffer() { (void)release(); }

    /// Takes `bytes`, or goes on where an earlier call, or giving back, failed. A refused pin is no failure, only slow.
    Status take(const D& driver, std::size_t bytes) noexcept {
        if (const Status status = settle(driver_ ? *driver_ : driver, unsettled_); !status.ok()) return status;
        if (!driver_) {
            if (const Status status = driver.map_host(bytes, pages_); !status.ok()) return status;
            driver_ = driver;
            bytes_ = bytes;
        }
        if (!ready_) {
            if (const Status status = driver_->populate_host(pages_, bytes_); !status.ok()) return status;
            pinned_ = pinned_ || driver_->pin_host(pages_, bytes_).ok();
            ready_ = true;
        }
        return {};
    }

    /// Gives it back. On failure it stays owned, to be tried again, or taken again. A lost device holds no pins.
    Status release() noexcept {
        if (!driver_) return {};
        if (const Status status = settle(*driver_, unsettled_); !status.ok()) return status;
        ready_ = false;
        const Status unpinned = pinned_ ? driver_->unpin_host(pages_) : Status{};
        // What the driver still holds is not pulled away from under it: others might be given the same addresses.
        if (!unpinned.ok() && unpinned.kind != StatusKind::gone) return unpinned;
        pinned_ = false;
        const Status status = driver_->unmap_host(pages_, bytes_);
        if (!status.ok()) return status;
        pages_ = nullptr;
        driver_.reset();
        return status;
    }

    /// Work that could not be waited for may still touch it: it is not taken again, nor given back, before the device
    /// has been.
    void unsettle() noexcept { unsettled_ = true; }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] bool pinned() const noexcept { return pinned_; }
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(pages_); }

private:
    void swap(PinnedBuffer& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(pages_, other.pages_);
        std::swap(bytes_, other.bytes_);
        std::swap(ready_, other.ready_);
        std::swap(pinned_, other.pinned_);
        std::swap(unsettled_, other.unsettled_);
    }

    std::optional<D> driver_;
    void* pages_ = nullptr;
    std::size_t bytes_ = 0;
    bool ready_ = false; // taken, and pinned if that could be
    bool pinned_ = false;
    bool unsettled_ = false;
};

} // namespace memsaver::inline v0_1
