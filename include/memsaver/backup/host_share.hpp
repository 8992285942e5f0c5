// What a store uses of the host memory that the tags of a saver share.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/ring.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// The budget, the ring and the pages of one store. Until `join`, nothing is shared. For one thread at a time, but for
/// the const functions.
class HostShare {
public:
    /// See Ring::Shape.
    HostShare(AnyDriver driver, std::size_t ring_bytes, unsigned threads, std::size_t largest_buffer)
        : driver_{std::move(driver)}, shape_{ring_bytes, threads, largest_buffer} {}

    /// Uses a budget from now on. Null: none is known.
    void join(const std::shared_ptr<HostBudget>& budget) {
        if (!budget || budget == budget_) return;
        budget_ = budget;
        ring_.reset();
    }

    /// Returns the most bytes of one buffer of the ring.
    [[nodiscard]] std::size_t buffer_bytes() const noexcept { return shape_.buffer_bytes; }
    /// Returns the ring. It allocates nothing until bytes pass through it.
    const std::shared_ptr<Ring>& ring() {
        if (!budget_) budget_ = std::make_shared<HostBudget>(); // it keeps what cannot be freed
        if (!ring_) ring_ = Ring::shared(budget_, driver_, shape_);
        return ring_;
    }

    /// Takes pages for a backup: see HostPart.
    [[nodiscard]] HostPart part(std::size_t bytes, bool pinned, const std::string& whose) const {
        return HostPart::take(budget_, pool_, driver_, bytes, pinned, whose);
    }
    /// Allocates pages for a copy of kept bytes: aligned to pages, and not in core dumps. Throws OutOfHostMemory.
    [[nodiscard]] std::shared_ptr<HostCells> copy(std::size_t bytes, const std::string& whose) const {
        auto promise = HostBudget::take(budget_, driver_, bytes, whose, "a copy");
        auto pages = pool_->make(driver_, bytes, std::move(promise), whose);
        const Status status = pages->take();
        if (!status.ok()) raise_of(status, "allocate host pages", {whose, in_bytes(bytes)}, bytes);
        return pages;
    }

    /// Closes `what`, or keeps it.
    Status add(std::shared_ptr<Closable> what) const noexcept { return pool_->add(std::move(what)); }
    /// Lets go of the ring, which the last user frees. Returns the first failure to free anything.
    Status leave() noexcept {
        ring_.reset();
        return retry();
    }
    /// Frees what could not be freed before. Returns the first failure.
    Status retry() const noexcept {
        const Status own = pool_->retry();
        const Status shared = budget_ ? budget_->retry() : Status{};
        return own.ok() ? shared : own;
    }

private:
    AnyDriver driver_;
    Ring::Shape shape_;
    std::shared_ptr<HostBudget> budget_;
    std::shared_ptr<Ring> ring_;
    std::shared_ptr<HostCellsPool> pool_ = std::make_shared<HostCellsPool>();
};

} // namespace memsaver::inline v0_3::detail
