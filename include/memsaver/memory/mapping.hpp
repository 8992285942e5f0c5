// The owner of one mapping of a handle at an address. Does not own the handle.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns the fact that pages are visible at [address, address + bytes), or nothing. Move-only. Unmapping does not wait
/// for work on the device: whoever unmaps has waited.
template <Pages D>
class Mapping {
public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept { swap(other); }
    Mapping& operator=(Mapping&& other) noexcept {
        Mapping{std::move(other)}.swap(*this);
        return *this;
    }
    ~Mapping() { (void)unmap(); }

    /// Maps the whole of `handle` into an empty `*this` and makes it readable and writable. If only the second fails,
    /// the mapping is owned all the same, and the caller undoes it.
    Status map(const D& driver, Address address, std::size_t bytes, PageHandle handle) noexcept {
        const Status status = driver.map(address, bytes, handle);
        if (!status.ok()) return status;
        driver_ = driver;
        address_ = address;
        bytes_ = bytes;
        return driver.allow_access(address, bytes);
    }

    /// Takes the pages out of sight. On failure the mapping stays owned, to be tried again.
    Status unmap() noexcept {
        if (!driver_) return {};
        const Status status = driver_->unmap(address_, bytes_);
        if (status.ok()) driver_.reset();
        return status;
    }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }

private:
    void swap(Mapping& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(address_, other.address_);
        std::swap(bytes_, other.bytes_);
    }

    std::optional<D> driver_;
    Address address_ = 0;
    std::size_t bytes_ = 0;
};

} // namespace memsaver::inline v0_1
