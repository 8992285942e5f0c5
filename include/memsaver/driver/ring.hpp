// The pinned buffers through which bytes pass between a device and storage that copies cannot reach.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/host_cells.hpp"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

/// Pinned buffers in pairs, one pair per thread, so that one is copied while the other is stored. A buffer is allocated
/// when bytes first pass through it, no larger than they are, and then kept. Transfers share the ring; a thread that
/// finds no pair free waits: who has one never waits for another transfer.
class Ring final : public Closable {
public:
    static constexpr std::size_t least_buffer = 2_MiB;

private:
    struct Slot {
        Slot() = default;
        Slot(const Slot&) = delete;
        Slot& operator=(const Slot&) = delete;
        [[gnu::noinline]] ~Slot() = default;

        std::array<PinnedBuffer, 2> pair;
        bool lent = false; // guarded by mutex_, as the next
        std::unique_ptr<Slot> next;
    };

public:
    /// How much may be in flight.
    struct Shape {
        /// Buffers of 2 MiB to `largest_buffer`: two for each of `threads` threads, or fewer pairs if `limit_bytes` is
        /// too small for that.
        Shape(std::size_t limit_bytes, unsigned threads, std::size_t largest_buffer) noexcept;

        std::size_t buffer_bytes; ///< most in one buffer
        std::size_t pairs;
    };

    Ring(AnyDriver driver, const Shape& shape, std::shared_ptr<HostBudget> budget = {});

    /// Returns the ring of a budget for a device and a size of buffers: those that have one share it. It has as many
    /// pairs as the largest shape asked for, and is freed with its last user; what fails then, the budget keeps.
    static std::shared_ptr<Ring> shared(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver,
                                        const Shape& shape);

    /// One thread's pair of buffers, for the lifetime of this object.
    class Loan {
    public:
        explicit Loan(Ring& ring) : ring_{ring}, slot_{ring.lend()} {}
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
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
    [[nodiscard]] std::size_t pairs() const noexcept;
    /// Returns the number of buffers that each thread of a transfer of `pieces` pieces uses.
    [[nodiscard]] std::size_t each(std::size_t pieces) const noexcept { return pieces <= pairs() ? 1 : 2; }
    /// Allocates the buffers for a transfer of `pieces` pieces of up to `bytes`, but for those in use. Throws
    /// OutOfHostMemory if there is no memory for a single one.
    void prepare(std::size_t pieces, std::size_t bytes, const std::string& whose = {});
    /// Waits for the device if unused buffers may still be touched by earlier work. Throws the exception for a failure.
    void settle(const std::string& whose = {});
    /// Frees the buffers that no transfer uses. Returns the first failure; what could not be freed is used again, or
    /// freed by the next call.
    Status clear() noexcept;
    /// As `clear`, once no user is left.
    MEMSAVER_INLINE Status close() noexcept override;

private:
    void widen(std::size_t pairs);
    Slot& lend();
    void take_back(Slot& slot) noexcept;
    /// Calls `act(slot)` for each slot that is not lent, which is lent meanwhile.
    void each_free(std::size_t most, FunctionRef<void(Slot&)> act);
    PinnedBuffer& made(Slot& slot, std::size_t which, std::size_t bytes, const std::string& whose);

    AnyDriver driver_;
    std::shared_ptr<HostBudget> budget_;
    std::size_t buffer_bytes_;
    mutable std::mutex mutex_; // guards the list, not the buffers
    std::condition_variable came_back_;
    std::unique_ptr<Slot> first_;
    std::size_t pairs_ = 0;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/ring.ipp"
#endif
