// The owner of one physical allocation. Does not know where it is mapped.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns one handle of physical pages, or nothing. Move-only. The pages go back to the device when the handle is
/// released *and* every mapping of it is gone.
template <Pages D>
class PhysicalBlock {
public:
    PhysicalBlock() = default;
    PhysicalBlock(PhysicalBlock&& other) noexcept { swap(other); }
    PhysicalBlock& operator=(PhysicalBlock&& other) noexcept {
        PhysicalBlock{std::move(other)}.swap(*this);
        return *this;
    }
    ~PhysicalBlock() { (void)release(); }

    /// Takes `bytes` of physical memory into an empty `*this`.
    Status create(const D& driver, std::size_t bytes) noexcept {
        PageHandle handle;
        const Status status = driver.create(bytes, handle);
        if (!status.ok()) return status;
        driver_ = driver;
        handle_ = handle;
        bytes_ = bytes;
        return status;
    }

    /// Gives the handle back. On failure it stays owned, to be tried again.
    Status release() noexcept {
        if (!driver_) return {};
        const Status status = driver_->release(handle_);
        if (status.ok()) driver_.reset();
        return status;
    }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] PageHandle handle() const noexcept { return handle_; }
    /// Physical bytes owned; 0 if none.
    [[nodiscard]] std::size_t bytes() const noexcept { return owns() ? bytes_ : 0; }

private:
    void swap(PhysicalBlock& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(handle_, other.handle_);
        std::swap(bytes_, other.bytes_);
    }

    std::optional<D> driver_;
    PageHandle handle_;
    std::size_t bytes_ = 0;
};

} // namespace memsaver::inline v0_1
