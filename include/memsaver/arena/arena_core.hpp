// One tag's memory on one device: grows, hands out blocks, and lets steps pause and resume it.
// Does not know other tags.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/arena_pages.hpp"
#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/arena/heaps.hpp"
#include "memsaver/arena/turn.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/memory/memory.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

template <Driver D>
class PauseStep;
template <Driver D>
class ResumeStep;
template <Driver D>
class TrimStep;

/// Locks, in the order in which they are taken: the turn (one operation at a time; held across waits and copies), then
/// `growing_` (one thread grows; held across driver calls that do not wait), then the pages' mutex or the heaps'
/// (bookkeeping).
template <Driver D>
class ArenaCore final : public ArenaBase {
public:
    /// Throws Misuse for impossible options, OutOfMemory if `options.reserve` does not fit, or what a failing driver
    /// call stands for.
    ArenaCore(D driver, std::string tag, AnyBackup<D> policy, ArenaOptions options)
        : policy_{std::move(policy)}, pages_{std::move(driver), std::move(tag), std::move(options)},
          heaps_{pages_.driver(), pages_.addresses(), pages_.granularity()}, slot_{policy_.open(pages_.driver())} {
        if (pages_.options().reserve != 0) grow(0, pages_.options().reserve, pages_.granularity());
    }

    ~ArenaCore() override {
        try {
            close();
        } catch (const std::exception& error) {
            tell(pages_.options().events, [&] { return Event{EventKind::ignored, tag(), device(), error.what()}; });
        }
    }

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        const std::size_t size = check_request(bytes, alignment);
        try {
            for (bool fenced = false;;) {
                require_open("allocate");
                const std::uint64_t seen = growths_.load();
                if (const Address address = heaps_.allocate(size, alignment, bytes)) return pointer(address);
                if (heaps_.fence_is_worth_it(size, growth_step(pages_.physical_bytes(), pages_.granularity()))) {
                    heaps_.fence();
                    continue;
                }
                try {
                    grow(seen, size, alignment);
                } catch (const Error&) { // no room: what waits to be reused may be room enough
                    if (fenced || !heaps_.anything_fenced()) throw;
                    heaps_.fence();
                    fenced = true;
                }
            }
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"allocate(" + format_bytes(bytes) + ") in tag \"" + tag() +
                                  "\": no host memory for it"};
        }
    }

    void deallocate(void* pointer, FreeOrder order) override {
        if (pointer == nullptr) return;
        require_open("deallocate");
        if (!contains(pointer)) {
            throw Misuse{"deallocate(" + format_address(address_of(pointer)) + "): not a pointer of tag \"" + tag() +
                         '"'};
        }
        try {
            heaps_.deallocate(address_of(pointer), order, tag(), [&](std::uint64_t serial) {
                if (slot_) slot_->forget(serial);
            });
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"deallocate in tag \"" + tag() + "\": no host memory for it"};
        }
    }

    void deallocate_quietly(void* pointer) noexcept override {
        if (closed_.load()) return;
        try {
            deallocate(pointer, {});
        } catch (const std::exception& error) {
            tell(pages_.options().events, [&] { return Event{EventKind::ignored, tag(), device(), error.what()}; });
        }
    }

    [[nodiscard]] bool contains(const void* pointer) const noexcept override {
        const auto address = reinterpret_cast<Address>(pointer);
        return address >= addresses().address && address < addresses().end();
    }

    [[nodiscard]] ArenaUsage usage() override {
        const auto sums = heaps_.sums();
        ArenaUsage row;
        row.tag = tag();
        row.device = device();
        row.policy = policy_.name();
        row.used_bytes = sums.live_bytes;
        row.blocks = sums.live_blocks;
        const std::lock_guard lock{pages_.mutex};
        row.reserved_bytes = pages_.reserved() ? addresses().bytes : 0;
        row.mapped_bytes = pages_.physical_bytes();
        for (const auto& held : pages_.held) row.held_bytes += held.extent.physical_bytes();
        for (const auto& batch : pages_.paused) {
            for (const Range& range : batch.ranges) row.paused_bytes += range.bytes;
        }
        row.backed_up_bytes = slot_ ? slot_->backed_up_bytes() : 0;
        const bool some_active = row.mapped_bytes > row.held_bytes;
        row.state = closed_.load()          ? "closed"
                    : row.paused_bytes == 0 ? (some_active ? "active" : "empty")
                                            : (some_active ? "partly paused" : "paused");
        return row;
    }

    [[nodiscard]] const std::string& tag() const noexcept override { return pages_.tag(); }
    [[nodiscard]] int device() const noexcept override { return driver().device(); }
    [[nodiscard]] const D& driver() const noexcept { return pages_.driver(); }
    [[nodiscard]] const AnyBackup<D>& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return pages_.options(); }

    /// The right to run one operation. Throws NotIdle once the deadline has passed, Misuse after `close`.
    Turn::Hold take_turn(const Deadline& deadline = {}) {
        auto hold = turn_.take(deadline);
        require_open("use");
        return hold;
    }

    /// The same if it is to be had at once.
    std::optional<Turn::Hold> try_turn() { return closed_.load() ? std::optional<Turn::Hold>{} : turn_.try_take(); }

    /// All addresses that its blocks can have.
    [[nodiscard]] Range addresses() const noexcept { return pages_.addresses(); }

    /// Physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() {
        std::size_t bytes = 0;
        for (const Range& range : ranges_to_resume()) bytes += range.bytes;
        return bytes;
    }

    /// The program changed bytes that the policy may have saved before: save them again at the next pause.
    void invalidate() {
        const auto turn = take_turn();
        slot_->invalidate();
    }

    /// Gives everything back, waiting for the device first. Later calls throw Misuse, but for those of destructors. A
    /// lost device is no failure here. Throws what the first failing driver call stands for, after everything has been
    /// tried; what is left is tried again by the next call.
    void close() {
        const auto turn = turn_.take();
        const std::lock_guard growing{growing_};
        if (!closed_.exchange(true)) {
            const Status drained = driver().drain(); // memory that work still uses is not pulled away
            if (!drained.ok() && drained.kind != StatusKind::gone) {
                closed_.store(false);
                check(drained, "wait for the device before an arena closes");
            }
        }
        check(pages_.close(), "give back an arena's memory");
        std::shared_ptr<AnySlot> slot; // dies after the lock
        const std::lock_guard lock{pages_.mutex};
        heaps_.close([&] { slot.swap(slot_); });
    }

private:
    friend class PauseStep<D>;
    friend class ResumeStep<D>;
    friend class TrimStep<D>;

    [[nodiscard]] std::size_t check_request(std::size_t bytes, std::size_t alignment) const {
        const auto refuse = [&](const std::string& why) {
            throw Misuse{"allocate(" + std::to_string(bytes) + " bytes) in tag \"" + tag() + "\": " + why};
        };
        if (bytes == 0) refuse("the size is 0");
        if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
            refuse("the alignment of " + std::to_string(alignment) + " is not a power of two");
        }
        if (bytes > addresses().bytes || alignment > addresses().bytes) {
            refuse("more than the tag's capacity of " + format_bytes(addresses().bytes));
        }
        return align_up(bytes, BlockAllocator::unit);
    }
    void require_open(const char* what) const {
        if (closed_.load()) throw Misuse{std::string{what} + ": tag \"" + tag() + "\" has been closed"};
    }

    static Address address_of(const void* pointer) noexcept { return reinterpret_cast<Address>(pointer); }
    static void* pointer(Address address) noexcept {
        return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
    }

    // --- growth ---

    /// Takes open memory for a block of `bytes`, unless somebody has grown the arena since `seen`.
    void grow(std::uint64_t seen, std::size_t bytes, std::size_t alignment) {
        const std::lock_guard growing{growing_};
        require_open("allocate");
        if (growths_.load() != seen) return;
        const auto offer = [&](Range range) { heaps_.add(range); };
        const std::size_t needed = align_up(bytes, pages_.granularity());
        const std::size_t step = std::max(needed, growth_step(pages_.physical_bytes(), pages_.granularity()));
        Range range = pages_.take_addresses(step, needed, alignment);
        Status status = pages_.grow_into(range, offer);
        if (status.kind == StatusKind::out_of_memory && range.bytes != needed) {
            range = pages_.take_addresses(needed, needed, alignment);
            status = pages_.grow_into(range, offer);
        }
        if (!status.ok()) pages_.raise_no_room(status, "take memory for an allocation", needed);
        growths_ += 1;
    }

    // --- what is paused ---

    /// The parts of paused ranges in which no block lives, in whole granules, long enough to be worth leaving out.
    [[nodiscard]] std::vector<Range> dead_ranges(const std::vector<Range>& paused) {
        std::vector<Range> dead;
        for (const Range& free : heaps_.free_ranges(pages_.granularity(), Side::shut)) {
            const Address begin = align_up(free.address, pages_.granularity());
            const Address end = align_down(free.end(), pages_.granularity());
            if (begin < end) dead.push_back({begin, end - begin});
        }
        sort_by_address(dead);
        dead = intersection(dead, paused);
        std::erase_if(dead, [&](const Range& range) { // short, and not the whole of what is between others
            if (range.bytes >= shortest_cut) return false;
            const auto whole = [&](const Range& held) {
                return held.address >= range.address && held.end() <= range.end();
            };
            return std::none_of(paused.begin(), paused.end(), whole);
        });
        return dead;
    }
    [[nodiscard]] std::vector<Range> ranges_to_resume() {
        const std::vector<Range> paused = pages_.paused_ranges();
        return without(paused, dead_ranges(paused));
    }
    /// Paused ranges in which no block lives are dropped. With the turn held. May throw bad_alloc; what has been
    /// dropped by then was nobody's.
    void forget_paused(const std::vector<Range>& dead) {
        for (const Range& range : dead) {
            if (heaps_.remove_if_free(range, Side::shut)) pages_.forget_paused(range);
        }
    }
    void open_all() noexcept {
        const std::vector<Range> none;
        try {
            heaps_.end_operation(&none, [](Address) { return false; });
        } catch (const std::bad_alloc&) { // opening everything needs no memory
        }
    }
    /// Ends a step. Blocks given up in paused memory become free: no work can touch them. With `shut_stays`, exactly
    /// what was shut during the step is paused now.
    void end_operation(bool shut_stays) noexcept {
        try {
            const std::vector<Range> paused = pages_.paused_ranges();
            const auto passed = [&](Address address) {
                const auto after = std::upper_bound(paused.begin(), paused.end(), address,
                                                    [](Address a, const Range& range) { return a < range.address; });
                return after != paused.begin() && address < std::prev(after)->end();
            };
            heaps_.end_operation(shut_stays ? nullptr : &paused, passed);
        } catch (const std::bad_alloc&) { // what is open stays shut: it serves nobody until the next step ends
            tell(pages_.options().events, [&] {
                return Event{EventKind::ignored, tag(), device(), "no host memory to reopen memory"};
            });
        }
    }

    AnyBackup<D> policy_;
    std::atomic<bool> closed_{false};
    std::atomic<std::uint64_t> growths_{0};
    Turn turn_;
    std::mutex growing_;
    ArenaPages<D> pages_;
    Heaps<D> heaps_;
    std::shared_ptr<AnySlot> slot_;
};

} // namespace memsaver::inline v0_1
