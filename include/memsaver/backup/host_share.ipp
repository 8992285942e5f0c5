// Definitions of host_share.hpp.
#pragma once

#include "memsaver/backup/host_share.hpp"

#include "memsaver/core/error.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE HostShare::HostShare(AnyDriver driver, std::size_t ring_bytes, unsigned threads,
                                     std::size_t largest_buffer)
    : driver_{std::move(driver)}, shape_{ring_bytes, threads, largest_buffer} {}

MEMSAVER_INLINE void HostShare::join(const std::shared_ptr<HostBudget>& budget) {
    if (!budget || budget == budget_) return;
    budget_ = budget;
    ring_.reset();
}

MEMSAVER_INLINE const std::shared_ptr<Ring>& HostShare::ring() {
    if (!budget_) budget_ = std::make_shared<HostBudget>(); // it keeps what cannot be freed
    if (!ring_) ring_ = Ring::shared(budget_, driver_, shape_);
    return ring_;
}

MEMSAVER_INLINE HostPart HostShare::part(std::size_t bytes, bool pinned, const std::string& whose) const {
    return HostPart::take(budget_, pool_, driver_, bytes, pinned, whose);
}

MEMSAVER_INLINE std::shared_ptr<HostCells> HostShare::copy(std::size_t bytes, const std::string& whose) const {
    auto promise = HostBudget::take(budget_, driver_, bytes, whose, "a copy");
    auto pages = pool_->make(driver_, bytes, std::move(promise), whose);
    const Status status = pages->take();
    if (!status.ok()) raise_of(status, "allocate host pages", {whose, in_bytes(bytes)}, bytes);
    return pages;
}

MEMSAVER_INLINE Status HostShare::leave() noexcept {
    ring_.reset();
    return retry();
}

MEMSAVER_INLINE Status HostShare::retry() const noexcept {
    const Status own = pool_->retry();
    const Status shared = budget_ ? budget_->retry() : Status{};
    return own.ok() ? shared : own;
}

} // namespace detail

} // namespace memsaver::inline v0_3
