// The owner of a reserved range of addresses. Knows nothing of what is mapped there.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns reserved addresses, without memory behind them. Move-only; gives them back when it dies.
template <Pages D>
class Reservation {
public:
    Reservation() = default;

    /// Reserves `bytes` at a multiple of `alignment`. Throws what the driver's status stands for.
    Reservation(D driver, std::size_t bytes, std::size_t alignment) : driver_{std::move(driver)}, bytes_{bytes} {
        check(driver_->reserve(bytes, alignment, address_), "reserve addresses", bytes, 0);
    }

    Reservation(Reservation&& other) noexcept { swap(other); }
    Reservation& operator=(Reservation&& other) noexcept {
        Reservation{std::move(other)}.swap(*this);
        return *this;
    }
    ~Reservation() { (void)close(); }

    /// Gives the addresses back now. On failure they stay owned, to be tried again.
    Status close() noexcept {
        if (address_ == 0) return {};
        const Status status = driver_->unreserve(address_, bytes_);
        if (status.ok()) address_ = 0;
        return status;
    }

    [[nodiscard]] Address address() const noexcept { return address_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    void swap(Reservation& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(address_, other.address_);
        std::swap(bytes_, other.bytes_);
    }

    std::optional<D> driver_;
    Address address_ = 0;
    std::size_t bytes_ = 0;
};

} // namespace memsaver::inline v0_1
