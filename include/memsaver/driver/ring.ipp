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
    HostBudget::SharedRing* place = budget->first_ring_.get();
    for (; place != nullptr; place = place->next.get()) {
        if (place->driver != driver || place->buffer_bytes != shape.buffer_bytes) continue;
        found = place->ring.lock();
        if (found == nullptr) break;
        found->widen(shape.pairs);
        return found;
    }
    if (place == nullptr) {
        budget->first_ring_ = std::unique_ptr<HostBudget::SharedRing>{
            new HostBudget::SharedRing{driver, shape.buffer_bytes, {}, std::move(budget->first_ring_)}};
        place = budget->first_ring_.get();
    }
    auto made = std::make_shared<Ring>(driver, shape, budget);
    Ring* const ring = made.get();
    found = {budget->pool_->share(std::move(made)), ring};
    place->ring = found;
    return found;
}

MEMSAVER_INLINE Status HostBudget::trim() noexcept {
    Status first = retry();
    const SharedRing* next = nullptr; // entries stay as long as the budget
    {
        const std::lock_guard lock{mutex_};
        next = first_ring_.get();
    }
    for (; next != nullptr; next = next->next.get()) {
        std::shared_ptr<Ring> ring;
        {
            const std::lock_guard lock{mutex_};
            ring = next->ring.lock();
        }
        if (const Status status = ring ? ring->clear() : Status{}; first.ok()) first = status;
    }
    return first;
}

MEMSAVER_INLINE std::size_t Ring::pairs() const noexcept {
    const std::lock_guard lock{mutex_};
    return pairs_;
}

MEMSAVER_INLINE void Ring::widen(std::size_t pairs) {
    const std::lock_guard lock{mutex_};
    for (; pairs_ < pairs; ++pairs_) {
        auto slot = std::make_unique<Slot>();
        slot->next = std::move(first_);
        first_ = std::move(slot);
    }
}

MEMSAVER_INLINE void Ring::each_free(std::size_t most, FunctionRef<void(Slot&)> act) {
    Slot* next = nullptr;
    {
        const std::lock_guard lock{mutex_};
        next = first_.get();
    }
    for (; next != nullptr && most != 0; --most) {
        Slot* const slot = next;
        {
            const std::lock_guard lock{mutex_};
            next = slot->next.get();
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
    for (;;) {
        Slot* found = nullptr; // rather one that has a buffer: there may be no memory for another
        for (Slot* slot = first_.get(); slot != nullptr; slot = slot->next.get()) {
            if (!slot->lent && (found == nullptr || found->pair[0].lacks(1))) found = slot;
        }
        if (found != nullptr) {
            found->lent = true;
            return *found;
        }
        came_back_.wait(lock);
    }
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
