// The owner of one pinned host buffer, for bytes on their way.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns host pages that are taken and, if the driver lets it, pinned; or nothing. Move-only.
template <HostPages D>
class PinnedBuffer {
public:
    PinnedBuffer() = default;
    /// Throws OutOfHostMemory, or what else a failing call stands for; a refused pin is no failure, only slow.
    PinnedBuffer(D driver, std::size_t bytes) {
        check(driver.map_host(bytes, pages_), "map host pages", bytes, 0);
        driver_ = std::move(driver);
        bytes_ = bytes;
        if (const Status status = driver_->populate_host(pages_, bytes); !status.ok()) {
            reset();
            check(status, "take host pages", bytes, 0);
        }
        pinned_ = driver_->pin_host(pages_, bytes).ok();
    }
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        PinnedBuffer{std::move(other)}.swap(*this);
        return *this;
    }
    ~PinnedBuffer() { reset(); }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] bool pinned() const noexcept { return pinned_; }
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(pages_); }

    /// Gives it back; owns nothing then.
    void reset() noexcept {
        if (!driver_) return;
        const Status status = pinned_ ? driver_->unpin_host(pages_) : Status{};
        // What the driver still holds is not pulled away from under it: others might be given the same addresses.
        if (status.ok() || status.kind == StatusKind::gone) (void)driver_->unmap_host(pages_, bytes_);
        driver_.reset();
    }

private:
    void swap(PinnedBuffer& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(pages_, other.pages_);
        std::swap(bytes_, other.bytes_);
        std::swap(pinned_, other.pinned_);
    }

    std::optional<D> driver_;
    void* pages_ = nullptr;
    std::size_t bytes_ = 0;
    bool pinned_ = false;
};

} // namespace memsaver::inline v0_1
