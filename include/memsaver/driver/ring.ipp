// Definitions of ring.hpp.
#pragma once

#include "memsaver/driver/ring.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Ring::Shape::Shape(std::size_t limit_bytes, unsigned threads, std::size_t largest_buffer) noexcept
    : buffer_bytes{std::max(
          least_buffer,
          std::min(largest_buffer, std::bit_floor(limit_bytes / (2 * std::max<std::size_t>(1, threads)))))},
      pairs{std::clamp<std::size_t>(limit_bytes / (2 * buffer_bytes), 1, std::max(1U, threads))} {}

MEMSAVER_INLINE Ring::Ring(AnyDriver driver, const Shape& shape, std::shared_ptr<HostBudget> budget)
    : driver_{std::move(driver)}, budget_{std::move(budget)}, buffer_bytes_{shape.buffer_bytes} {
    widen(shape.pairs);
}

MEMSAVER_INLINE std::shared_ptr<Ring> Ring::shared(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver,
                                                   const Shape& shape) {
    std::shared_ptr<Ring> found; // declared before the lock: what it frees needs the lock
    const std::lock_guard lock{budget->mutex_};
    std::erase_if(budget->rings_, [](const HostBudget::SharedRing& each) { return each.ring.expired(); });
    for (const HostBudget::SharedRing& each : budget->rings_) {
        if (each.driver != driver || each.buffer_bytes != shape.buffer_bytes) continue;
        found = each.ring.lock();
        if (found == nullptr) continue;
        found->widen(shape.pairs);
        return found;
    }
    budget->rings_.reserve(budget->rings_.size() + 1);
    auto made = std::make_shared<Ring>(driver, shape, budget);
    Ring* const ring = made.get();
    found = {ring, [pool = budget->pool_, made = std::move(made)](Ring*) mutable noexcept {
                 (void)pool->add(std::move(made));
             }};
    budget->rings_.push_back({driver, shape.buffer_bytes, found});
    return found;
}

MEMSAVER_INLINE Status HostBudget::trim() noexcept {
    Status first = retry();
    for (std::size_t i = 0;; ++i) {
        std::shared_ptr<Ring> ring;
        {
            const std::lock_guard lock{mutex_};
            if (i == rings_.size()) return first;
            ring = rings_[i].ring.lock();
        }
        if (const Status status = ring ? ring->clear() : Status{}; first.ok()) first = status;
    }
}

MEMSAVER_INLINE std::size_t Ring::pairs() const noexcept {
    const std::lock_guard lock{mutex_};
    return slots_.size();
}

MEMSAVER_INLINE void Ring::widen(std::size_t pairs) {
    const std::lock_guard lock{mutex_};
    while (slots_.size() < pairs) slots_.push_back(std::make_unique<Slot>());
}

template <class Act>
void Ring::each_free(std::size_t most, const Act& act) {
    for (std::size_t i = 0; i < most; ++i) {
        Slot* slot = nullptr;
        {
            const std::lock_guard lock{mutex_};
            if (i >= slots_.size()) return;
            slot = slots_[i].get();
            if (std::exchange(slot->lent, true)) continue;
        }
        struct Back {
            ~Back() { ring.take_back(slot); }
            Ring& ring;
            Slot& slot;
        } const back{*this, *slot};
        act(*slot);
    }
}

MEMSAVER_INLINE void Ring::prepare(std::size_t pieces, std::size_t bytes, const std::string& whose) {
    const std::size_t buffers = each(pieces);
    bool any = false;
    each_free(pieces, [&](Slot& slot) {
        for (std::size_t which = 0; which < buffers; ++which) {
            try {
                (void)made(slot, which, bytes, whose);
                any = true;
            } catch (const OutOfHostMemory&) {
                if (!any) throw; // with fewer buffers it is only slower
            }
        }
    });
}

MEMSAVER_INLINE void Ring::settle(const std::string& whose) {
    each_free(pairs(), [&](Slot& slot) {
        for (PinnedBuffer& buffer : slot.pair) {
            const Status status = buffer.settle();
            if (!status.ok()) raise_of(status, "allocate a transfer buffer", {whose, in_bytes(buffer_bytes_)});
        }
    });
}

MEMSAVER_INLINE Status Ring::clear() noexcept {
    Status first;
    each_free(pairs(), [&](Slot& slot) {
        for (PinnedBuffer& buffer : slot.pair) {
            if (const Status status = buffer.release(); first.ok()) first = status;
        }
    });
    return first;
}

MEMSAVER_INLINE Status Ring::close() noexcept {
    budget_.reset(); // which may keep this ring
    return clear();
}

MEMSAVER_INLINE Ring::Slot& Ring::lend() {
    std::unique_lock lock{mutex_};
    auto free = slots_.end();
    came_back_.wait(lock, [&] {
        free = std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot->lent; });
        return free != slots_.end();
    });
    (*free)->lent = true;
    return **free;
}

MEMSAVER_INLINE void Ring::take_back(Slot& slot) noexcept {
    const std::lock_guard lock{mutex_};
    slot.lent = false;
    came_back_.notify_one();
}

MEMSAVER_INLINE PinnedBuffer& Ring::made(Slot& slot, std::size_t which, std::size_t bytes, const std::string& whose) {
    PinnedBuffer& buffer = slot.pair[which];
    if (!buffer.lacks(bytes) && !buffer.unsettled()) return buffer;
    HostBudget::Promise promise;
    if (buffer.lacks(bytes)) promise = HostBudget::take(budget_, driver_, bytes, whose, "a transfer buffer");
    const Status status = buffer.take(driver_, bytes, std::move(promise));
    if (!status.ok()) raise_of(status, "allocate a transfer buffer", {whose, in_bytes(bytes)});
    return buffer;
}

} // namespace detail

} // namespace memsaver::inline v0_3
