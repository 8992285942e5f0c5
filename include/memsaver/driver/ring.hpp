// The pinned buffers through which bytes pass between a device and storage that copies cannot reach.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/driver/host_cells.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Pinned buffers in pairs, one pair per thread, so that one is copied while the other is stored. A buffer is allocated
/// when bytes first pass through it, no larger than they are, and then kept. Transfers share the ring; a thread that
/// finds no pair free waits: who has one never waits for another transfer.
class Ring final : public Closable {
public:
    static constexpr std::size_t least_buffer = 2_MiB;

private:
    struct Slot {
        Slot& operator=(Slot&&) = delete;
        [[gnu::noinline]] ~Slot() = default;

        std::array<PinnedBuffer, 2> pair;
        bool lent = false; // guarded by mutex_, as the next
        UniquePtr<Slot> next;
    };

public:
    struct Shape {
        /// Buffers of 2 MiB to `largest_buffer`: two for each of `threads` threads, or fewer pairs if `limit_bytes` is
        /// too small for that.
        Shape(std::size_t limit_bytes, unsigned threads, std::size_t largest_buffer) noexcept
            : buffer_bytes{std::max(
                  least_buffer,
                  std::min(largest_buffer, std::bit_floor(limit_bytes / (2 * std::max<std::size_t>(1, threads)))))},
              pairs{std::clamp<std::size_t>(limit_bytes / (2 * buffer_bytes), 1, std::max(1U, threads))} {}

        std::size_t buffer_bytes; ///< most in one buffer
        std::size_t pairs;
    };

    Ring(AnyDriver driver, const Shape& shape, std::shared_ptr<HostBudget> budget = {})
        : driver_{std::move(driver)}, budget_{std::move(budget)}, buffer_bytes_{shape.buffer_bytes} {
        widen(shape.pairs);
    }

    /// Returns the ring of a budget for a device and a size of buffers: those that have one share it. It has as many
    /// pairs as the largest shape asked for, and is freed with its last user; what fails then, the budget keeps.
    static std::shared_ptr<Ring> shared(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver,
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
            budget->first_ring_ = UniquePtr<HostBudget::SharedRing>{
                new HostBudget::SharedRing{driver, shape.buffer_bytes, {}, std::move(budget->first_ring_)}};
            place = budget->first_ring_.get();
        }
        found = budget->pool_->share(new_shared<Ring>(driver, shape, budget));
        place->ring = found;
        return found;
    }

    /// One thread's pair of buffers, for the lifetime of this object.
    class Loan {
    public:
        explicit Loan(Ring& ring) : Loan{ring, ring.lend()} {}
        /// Of a slot that is lent already.
        Loan(Ring& ring, Slot& slot) noexcept : ring_{ring}, slot_{slot} {}
        Loan& operator=(Loan&&) = delete;
        ~Loan() { ring_.take_back(slot_); }
        /// Returns a buffer for `bytes`, at most `buffer_bytes`. `whose` is for error messages. Throws OutOfHostMemory.
        PinnedBuffer& buffer(std::size_t which, std::size_t bytes, const std::string& whose = {}) {
            return ring_.made(slot_, which, bytes, whose);
        }

    private:
        Ring& ring_;
        Slot& slot_;
    };

    [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    [[nodiscard]] std::size_t pairs() const noexcept {
        const std::lock_guard lock{mutex_};
        return pairs_;
    }
    /// Returns the number of buffers that each thread of a transfer of `pieces` pieces uses.
    [[nodiscard]] std::size_t each(std::size_t pieces) const noexcept { return pieces <= pairs() ? 1 : 2; }
    /// Allocates the buffers for a transfer of `pieces` pieces of up to `bytes`, but for those in use. Throws
    /// OutOfHostMemory if there is no memory for a single one.
    void prepare(std::size_t pieces, std::size_t bytes, const std::string& whose = {}) {
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
    /// Waits for the device if unused buffers may still be touched by earlier work. Throws the exception for a failure.
    void settle(const std::string& whose = {}) {
        const Status status = of_all_free(&PinnedBuffer::settle);
        if (!status.ok()) raise_of(status, "allocate a transfer buffer", {whose, in_bytes(buffer_bytes_)});
    }
    /// Frees the buffers that no transfer uses. Returns the first failure; what could not be freed is used again, or
    /// freed by the next call.
    Status clear() noexcept { return of_all_free(&PinnedBuffer::release); }
    /// As `clear`, once no user is left.
    Status close() noexcept override {
        budget_.reset(); // which may keep this ring
        return clear();
    }

private:
    void widen(std::size_t pairs) {
        const std::lock_guard lock{mutex_};
        for (; pairs_ < pairs; ++pairs_) {
            auto slot = UniquePtr<Slot>::make();
            slot->next = std::move(first_);
            first_ = std::move(slot);
        }
    }
    Slot& lend() {
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
    void take_back(Slot& slot) noexcept {
        const std::lock_guard lock{mutex_};
        slot.lent = false;
        came_back_.notify_one();
    }
    /// Calls `act(slot)` for each slot that is not lent, which is lent meanwhile.
    void each_free(std::size_t most, FunctionRef<void(Slot&)> act) {
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
            const Loan meanwhile{*this, *slot};
            act(*slot);
        }
    }
    /// Calls `act` for each buffer that is not lent. Returns the first failure.
    Status of_all_free(Status (PinnedBuffer::*act)() noexcept) noexcept {
        Status first;
        each_free(pairs(), [&](Slot& slot) {
            for (PinnedBuffer& buffer : slot.pair)
                if (const Status status = (buffer.*act)(); first.ok()) first = status;
        });
        return first;
    }
    PinnedBuffer& made(Slot& slot, std::size_t which, std::size_t bytes, const std::string& whose) {
        PinnedBuffer& buffer = slot.pair[which];
        if (!buffer.lacks(bytes) && !buffer.unsettled()) return buffer;
        HostBudget::Promise promise;
        if (buffer.lacks(bytes)) promise = HostBudget::take(budget_, driver_, bytes, whose, "a transfer buffer");
        const Status status = buffer.take(driver_, bytes, std::move(promise));
        if (!status.ok()) raise_of(status, "allocate a transfer buffer", {whose, in_bytes(bytes)});
        return buffer;
    }

    AnyDriver driver_;
    std::shared_ptr<HostBudget> budget_;
    std::size_t buffer_bytes_;
    mutable std::mutex mutex_; // guards the list, not the buffers
    std::condition_variable came_back_;
    UniquePtr<Slot> first_;
    std::size_t pairs_ = 0;
};

inline Status HostBudget::trim() noexcept {
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

} // namespace memsaver::inline v0_3::detail
