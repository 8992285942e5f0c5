// Definitions of host_cells.hpp.
#pragma once

#include "memsaver/driver/host_cells.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE HostBudget::Promise& HostBudget::Promise::operator=(Promise&& other) noexcept {
    end();
    budget_ = std::move(other.budget_);
    bytes_ = std::exchange(other.bytes_, 0);
    taken_ = std::exchange(other.taken_, 0);
    return *this;
}

MEMSAVER_INLINE void HostBudget::Promise::touched(std::size_t bytes) noexcept {
    if (!budget_) return;
    const std::lock_guard lock{budget_->mutex_};
    bytes = std::min(bytes, bytes_);
    budget_->promised_ -= bytes;
    bytes_ -= bytes;
    budget_->taken_ += bytes;
    taken_ += bytes;
}

MEMSAVER_INLINE void HostBudget::Promise::end() noexcept {
    if (!budget_) return;
    const std::shared_ptr<HostBudget> budget = std::move(budget_); // it may be the last owner of the mutex
    const std::lock_guard lock{budget->mutex_};
    budget->promised_ -= std::exchange(bytes_, 0);
    budget->taken_ -= std::exchange(taken_, 0);
}

/// Pages of at most HostPart::shared_below bytes, in a mapping that small backups share.
struct HostBudget::Slab {
    static constexpr std::size_t page = 4096;

    Slab(std::shared_ptr<HostCells> mapping, bool pins)
        : cells{std::move(mapping)}, pinned{pins}, free{cells->bytes()} {}

    /// Marks the first free range as used. Returns its address, or 0.
    std::uintptr_t take(std::size_t bytes) noexcept {
        const std::size_t wanted = bytes / page;
        std::size_t found = 0;
        for (std::size_t at = 0; bytes <= free && at < cells->bytes() / page; ++at) {
            found = used[at] != 0 ? 0 : found + 1;
            if (found < wanted) continue;
            const std::size_t first = at + 1 - wanted;
            std::memset(&used[first], 1, wanted);
            free -= bytes;
            return cells->address() + first * page;
        }
        return 0;
    }

    std::shared_ptr<HostCells> cells;
    bool pinned;
    std::size_t free;                                       // bytes
    std::array<char, HostPart::shared_below / page> used{}; // of each page
};

MEMSAVER_INLINE HostBudget::HostBudget() : pool_{std::make_shared<HostCellsPool>()} {}

MEMSAVER_INLINE HostBudget::~HostBudget() = default;

MEMSAVER_INLINE Status HostBudget::retry() noexcept { return pool_->retry(); }

MEMSAVER_INLINE HostBudget::Promise HostBudget::take(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver,
                                                     std::size_t bytes, const std::string& whose, const char* what) {
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
        out_of_host_memory({whose, what, " of ", in_bytes(bytes),
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

MEMSAVER_INLINE std::size_t HostBudget::taken_bytes() const noexcept { return taken_.load(); }

MEMSAVER_INLINE void HostBudget::give(HostCells* cells, std::uintptr_t address, std::size_t bytes) noexcept {
    std::unique_ptr<Slab> unused; // freed without the lock
    const std::lock_guard lock{slabs_mutex_};
    for (std::unique_ptr<Slab>& slab : slabs_) {
        if (slab->cells.get() != cells) continue;
        std::memset(&slab->used[(address - cells->address()) / Slab::page], 0, bytes / Slab::page);
        slab->free += bytes;
        if (slab->free != cells->bytes()) return;
        unused = std::move(slab);
        slab = std::move(slabs_.back());
        return slabs_.pop_back();
    }
}

MEMSAVER_INLINE HostPart HostPart::take(const std::shared_ptr<HostBudget>& budget,
                                        const std::shared_ptr<HostCellsPool>& pool, const AnyDriver& driver,
                                        std::size_t bytes, bool pinned, const std::string& whose) {
    using Slab = HostBudget::Slab;
    bytes = align_up(bytes, Slab::page);
    const bool shares = budget && bytes < shared_below;
    std::unique_lock<std::mutex> lock;
    std::size_t there = 0;
    HostPart part{{}, 0, bytes};
    HostCells* cells = nullptr;
    if (shares) {
        lock = std::unique_lock{budget->slabs_mutex_};
        // From the last one, which is likely to have room.
        for (std::size_t i = budget->slabs_.size(); i-- != 0 && part.address == 0;) {
            Slab& slab = *budget->slabs_[i];
            if (slab.pinned != pinned || slab.cells->driver() != driver) continue;
            there += slab.cells->bytes();
            if (slab.cells->unsettled()) continue; // copies that were not waited for may still reach it
            part.address = slab.take(bytes);
            cells = slab.cells.get();
        }
    }
    if (part.address == 0) {
        const std::size_t wanted = shares ? std::clamp(there, bytes, shared_below) : bytes;
        auto promise = HostBudget::take(budget, driver, wanted, whose);
        part.cells = (shares ? budget->pool_ : pool)->make(driver, wanted, std::move(promise), whose);
        cells = part.cells.get();
        part.address = cells->address();
        if (!shares) return part;
        budget->slabs_.push_back(std::make_unique<Slab>(std::move(part.cells), pinned));
        (void)budget->slabs_.back()->take(bytes);
    }
    lock.unlock();
    part.cells = {
        cells, [budget, address = part.address, bytes](HostCells* of) noexcept { budget->give(of, address, bytes); }};
    return part;
}

MEMSAVER_INLINE HostCells::HostCells(AnyDriver driver, std::size_t bytes, HostBudget::Promise promise,
                                     const std::string& whose)
    : driver_{std::move(driver)}, promise_{std::move(promise)}, bytes_{align_up(bytes, 4096)},
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
    return {share(std::move(cells)), shared};
}

MEMSAVER_INLINE std::shared_ptr<Closable> HostCellsPool::share(std::shared_ptr<Closable> what) {
    Closable* const shared = what.get();
    return {shared, [self = shared_from_this(), what = std::move(what)](Closable*) mutable noexcept {
                (void)self->add(std::move(what));
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

MEMSAVER_INLINE Status PinnedBuffer::take(const AnyDriver& driver, std::size_t bytes,
                                          HostBudget::Promise promise) noexcept {
    const Status idle = driver_ && bytes_ < bytes ? release() : settle();
    if (!idle.ok()) return idle;
    if (lacks(bytes)) promise_ = std::move(promise);
    if (!driver_) {
        if (const Status status = driver.map_host(bytes, pages_); !status.ok()) return status;
        driver_ = driver;
        bytes_ = bytes;
    }
    if (!ready_) {
        if (const Status status = driver_->populate_host(pages_, bytes_); !status.ok()) return status;
        promise_.touched(bytes_);
        pinned_ = pinned_ || driver_->pin_host(pages_, bytes_).ok();
        ready_ = true;
    }
    return {};
}

MEMSAVER_INLINE Status PinnedBuffer::release() noexcept {
    if (!driver_) return {};
    if (const Status status = settle(); !status.ok()) return status;
    ready_ = false;
    promise_ = {};
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
    std::swap(promise_, other.promise_);
}

} // namespace detail

} // namespace memsaver::inline v0_3
