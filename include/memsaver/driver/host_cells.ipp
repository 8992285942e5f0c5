// Definitions of host_memory.hpp.
#pragma once

#include "memsaver/driver/host_cells.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE HostBudget::Promise& HostBudget::Promise::operator=(Promise&& other) noexcept {
    touched(bytes_);
    budget_ = std::move(other.budget_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
}

MEMSAVER_INLINE void HostBudget::Promise::touched(std::size_t bytes) noexcept {
    if (!budget_) return;
    const std::lock_guard lock{budget_->mutex_};
    bytes = std::min(bytes, bytes_);
    budget_->promised_ -= bytes;
    bytes_ -= bytes;
}

MEMSAVER_INLINE HostBudget::Promise HostBudget::take(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver,
                                                     std::size_t bytes, const std::string& whose) {
    std::unique_lock<std::mutex> lock;
    if (budget) lock = std::unique_lock{budget->mutex_};
    std::size_t available = 0;
    const Status asked = driver.host_available(available);
    if (!asked.ok())
        raise_of(asked, "query the available host memory (driver concept HostPages)", {whose, in_bytes(bytes)});
    const std::size_t promised = budget ? budget->promised_ : 0;
    available -= std::min(available, promised);
    if (bytes > available) {
        const std::string others =
            promised == 0 ? "" : text_of({" after subtracting the ", in_bytes(promised), " of other backups"});
        out_of_host_memory({whose, "a backup of ", in_bytes(bytes),
                            " does not fit: available host memory (system and control groups) is ", in_bytes(available),
                            others});
    }
    if (!budget) return {};
    budget->promised_ += bytes;
    return {budget, bytes};
}

MEMSAVER_INLINE std::size_t HostBudget::promised_bytes() const noexcept {
    const std::lock_guard lock{mutex_};
    return promised_;
}

MEMSAVER_INLINE HostCells::HostCells(AnyDriver driver, std::size_t bytes, HostBudget::Promise promise,
                                     const std::string& whose)
    : driver_{std::move(driver)}, promise_{std::move(promise)}, bytes_{align_up(bytes, 2_MiB)},
      cells_(bytes_ / cell_bytes + 2) {
    const Status status = driver_.map_host(bytes_, pages_);
    if (!status.ok()) raise_of(status, "map host pages", {whose, in_bytes(bytes_)});
    first_cell_ = address() / cell_bytes;
}

MEMSAVER_INLINE Status HostCells::close() noexcept {
    promise_ = {};
    Status first = settle(driver_, unsettled_);
    if (!first.ok()) return first;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
        if (cells_[i].state != State::pinned) continue;
        const Status status = driver_.unpin_host(cell_range(i).first);
        if (status.ok() || status.kind == StatusKind::gone) {
            cells_[i].state = State::populated;
        } else if (first.ok()) {
            first = status;
        }
    }
    // Do not unmap pages that the driver still has pinned: another mapping could get the same addresses.
    if (!first.ok() || pages_ == nullptr) return first;
    const Status status = driver_.unmap_host(pages_, bytes_);
    if (status.ok()) pages_ = nullptr;
    return status;
}

MEMSAVER_INLINE Status HostCells::take() noexcept {
    for (std::size_t i = 0; i < cells_.size(); ++i) {
        const auto [begin, bytes] = cell_range(i);
        if (bytes == 0) continue;
        const Status status = prepare(reinterpret_cast<std::uintptr_t>(begin), false);
        if (!status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE bool HostCells::ready(std::uintptr_t at, bool pinned) const noexcept {
    const Cell& cell = cells_[index_of(at)];
    const std::lock_guard lock{cell.mutex};
    return cell.state == State::pinned || (!pinned && cell.state == State::populated);
}

MEMSAVER_INLINE Status HostCells::prepare(std::uintptr_t at, bool pinned) noexcept {
    Cell& cell = cells_[index_of(at)];
    const auto [begin, bytes] = cell_range(index_of(at));
    const std::lock_guard lock{cell.mutex};
    if (cell.state == State::untouched) {
        if (const Status status = driver_.populate_host(begin, bytes); !status.ok()) return status;
        cell.state = State::populated;
        promise_.touched(bytes);
    }
    if (pinned && cell.state == State::populated) {
        if (const Status status = driver_.pin_host(begin, bytes); !status.ok()) return status;
        cell.state = State::pinned;
    }
    return {};
}

MEMSAVER_INLINE std::pair<void*, std::size_t> HostCells::cell_range(std::size_t index) const noexcept {
    const std::uintptr_t begin = std::max(address(), (first_cell_ + index) * cell_bytes);
    const std::uintptr_t past = std::min(end(), (first_cell_ + index + 1) * cell_bytes);
    return {static_cast<std::byte*>(pages_) + (begin - address()), past > begin ? past - begin : 0};
}

MEMSAVER_INLINE std::shared_ptr<HostCells> HostCellsPool::make(const AnyDriver& driver, std::size_t bytes,
                                                               HostBudget::Promise promise, const std::string& whose) {
    auto cells = std::make_shared<HostCells>(driver, bytes, std::move(promise), whose);
    HostCells* const shared = cells.get();
    return {shared, [self = shared_from_this(), cells = std::move(cells)](HostCells*) mutable noexcept {
                (void)self->add(std::move(cells));
            }};
}

MEMSAVER_INLINE PinnedBuffer::PinnedBuffer(const AnyDriver& driver, std::size_t bytes)
    : PinnedBuffer{} { // delegates, so that the destructor releases on failure
    if (const Status status = take(driver, bytes); !status.ok())
        raise(status, "allocate host pages", format_bytes(bytes));
}

MEMSAVER_INLINE PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer{std::move(other)}.swap(*this);
    return *this;
}

MEMSAVER_INLINE Status PinnedBuffer::settle() noexcept {
    return driver_ ? detail::settle(*driver_, unsettled_) : Status{};
}

MEMSAVER_INLINE Status PinnedBuffer::take(const AnyDriver& driver, std::size_t bytes) noexcept {
    if (const Status status = settle(); !status.ok()) return status;
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

MEMSAVER_INLINE Status PinnedBuffer::release() noexcept {
    if (!driver_) return {};
    if (const Status status = settle(); !status.ok()) return status;
    ready_ = false;
    const Status unpinned = pinned_ ? driver_->unpin_host(pages_) : Status{};
    // Do not unmap pages that the driver still has pinned: another mapping could get the same addresses.
    if (!unpinned.ok() && unpinned.kind != StatusKind::gone) return unpinned;
    pinned_ = false;
    const Status status = driver_->unmap_host(pages_, bytes_);
    if (!status.ok()) return status;
    pages_ = nullptr;
    driver_.reset();
    return status;
}

MEMSAVER_INLINE void PinnedBuffer::swap(PinnedBuffer& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(pages_, other.pages_);
    std::swap(bytes_, other.bytes_);
    std::swap(ready_, other.ready_);
    std::swap(pinned_, other.pinned_);
    std::swap(unsettled_, other.unsettled_);
}

} // namespace detail

} // namespace memsaver::inline v0_3
