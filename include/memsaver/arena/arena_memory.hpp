// An arena's pages and the blocks in them, kept in step: growth, and what a pause and a resume do to both.
// Does not know policies, nor who asks.
#pragma once

#include "memsaver/arena/arena_pages.hpp"
#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/arena/growing_block.hpp"
#include "memsaver/arena/heaps.hpp"
#include "memsaver/arena/quarantine_pages.hpp"
#include "memsaver/driver/system_fork.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Used by an ArenaCore and its steps. `growing` is held by whoever adds extents, and while a step takes them all.
template <Driver D>
class ArenaMemory {
public:
    ArenaMemory(D driver, std::string tag, ArenaOptions options, std::shared_ptr<QuarantineBlocks<D>> quarantine)
        : pages{std::move(driver), std::move(tag), std::move(options)},
          heaps{pages.driver(), pages.addresses(), pages.granularity()}, quarantined{std::move(quarantine)} {
        if (pages.options().reserve > pages.addresses().bytes) {
            throw Misuse{"tag \"" + pages.tag() + "\": a reserve of " + format_bytes(pages.options().reserve) +
                         " is more than the capacity of " + format_bytes(pages.addresses().bytes)};
        }
    }

    /// A block of `size` bytes (a multiple of 256) from open memory, which grows as it must.
    Address allocate(std::size_t size, std::size_t alignment, std::size_t requested) {
        const bool small = heaps.small(size, alignment);
        for (bool tried = false, fenced = false;;) {
            require_open([&] { return "allocate(" + std::to_string(requested) + " bytes)"; });
            const std::uint64_t seen = growths_.load();
            if (const Address address = heaps.allocate(size, alignment, requested)) return address;
            // What a block waited for others may take: it waits but once to save growth, else it might never have its
            // turn. Its shard alone can make it wait again.
            const std::size_t step = growth_step(pages.physical_bytes(), pages.granularity());
            if (heaps.fence_is_worth_it(size, small, tried ? ~std::size_t{0} : step)) {
                tried = true;
                heaps.fence();
                if (small) { // its shard's own may do, and need not stop all the others
                    if (const Address address = heaps.allocate(size, alignment, requested)) return address;
                }
                heaps.settle();
                continue;
            }
            try {
                grow(seen, size, alignment);
            } catch (const Error&) { // no room: what waits to be reused may be room enough
                if (fenced || !heaps.anything_fenced()) throw;
                heaps.fence();
                heaps.settle();
                fenced = true;
            }
        }
    }

    /// Takes what `options.reserve` asks for, until it was there once: what pauses and trims give back stays away.
    void reserve() {
        while (!reserved_.load()) { // again where others grew or gave back meanwhile
            const std::uint64_t seen = growths_.load();
            const std::size_t owned = pages.physical_bytes();
            if (owned < pages.options().reserve) grow(seen, pages.options().reserve - owned, pages.granularity());
            if (pages.physical_bytes() >= pages.options().reserve) reserved_.store(true);
        }
    }

    /// Physical bytes that could not be given back so far.
    [[nodiscard]] std::size_t held_bytes() {
        const std::lock_guard lock{pages.mutex};
        std::size_t sum = 0;
        for (const auto& kept : pages.held) sum += kept.extent.physical_bytes();
        return sum;
    }

    /// Tries again to give back what is held, the quarantine's shared memory too, and adds what has gone of the arena's
    /// own to `released_bytes`. With the turn held.
    Status retry_held(std::size_t& released_bytes) {
        const std::size_t before = held_bytes();
        const Status status = pages.retry_held();
        const std::size_t after = held_bytes(); // growth may have had to hold more meanwhile
        released_bytes += before - std::min(before, after);
        const Status shared = quarantined.retry();
        return status.ok() ? shared : status;
    }

    /// The parts of paused ranges that a resume leaves out: whole granules in which no block lives.
    [[nodiscard]] std::vector<Range> dead_ranges(const std::vector<Range>& paused) {
        std::vector<Range> dead;
        std::size_t total = 0;
        for (const Range& range : paused) total += range.bytes;
        for (const Range& free : heaps.free_ranges(pages.granularity(), Side::shut)) {
            const Address begin = align_up(free.address, pages.granularity());
            const Address end = align_down(free.end(), pages.granularity());
            if (begin < end) dead.push_back({begin, end - begin});
        }
        sort_by_address(dead);
        dead = worth_cutting(intersection(dead, paused), total);
        sort_by_address(dead);
        return dead;
    }
    [[nodiscard]] std::vector<Range> ranges_to_resume() {
        const std::vector<Range> paused = pages.paused_ranges();
        return without(paused, dead_ranges(paused));
    }
    /// Paused ranges in which no block lives are dropped. With the turn held. May throw bad_alloc; what has been
    /// dropped by then was nobody's.
    void forget_paused(const std::vector<Range>& dead) {
        for (const Range& range : dead) {
            pages.forget_paused(range, [&] { return heaps.remove_if_free(range, Side::shut); });
        }
    }
    void open_all() noexcept {
        const std::vector<Range> none;
        try {
            heaps.end_operation(&none, [](Range) { return false; });
            unfinished_ = false;
        } catch (const std::bad_alloc&) { // opening everything needs no memory
        }
    }
    /// Ends a step. Blocks given up in paused memory become free: no work can touch them. With `shut_stays`, exactly
    /// what was shut during the step is paused now.
    void end_operation(bool shut_stays) noexcept {
        try {
            const std::vector<Range> paused = pages.paused_ranges();
            const auto passed = [&](Range block) { return covers(paused, block); };
            heaps.end_operation(shut_stays && !unfinished_ ? nullptr : &paused, passed);
            unfinished_ = false;
        } catch (const std::bad_alloc&) { // what is open stays shut: it serves nobody until the next step ends
            unfinished_ = true;
            tell(pages.options().events, [&] {
                return Event{EventKind::ignored, pages.tag(), pages.driver().device(),
                             "no host memory to reopen memory"};
            });
        }
    }

    /// Puts the quarantine, if there is one, behind paused ranges. With the turn held.
    void cover(const std::vector<Range>& ranges) noexcept {
        if (const Status status = quarantined.cover(ranges); !status.ok()) {
            tell(pages.options().events, [&] {
                return Event{EventKind::ignored, pages.tag(), pages.driver().device(),
                             failure_text(status, "quarantine paused memory")};
            });
        }
    }

    /// Throws Misuse after `close`, and in a forked process. `what()` answers a text of what was wanted.
    template <std::invocable What>
    void require_open(What&& what) const {
        if (!fork_mark.forked() && !closed.load()) return;
        const std::string wanted = what();
        fork_mark.require_parent(wanted.c_str());
        throw Misuse{wanted + ": tag \"" + pages.tag() + "\" has been closed"};
    }
    void require_open(const char* what) const {
        require_open([&] { return std::string{what}; });
    }

    /// Throws what a failing driver call stands for, with the tag in the text.
    void check_of_tag(const Status& status, const Attempt& attempt) const {
        if (!status.ok()) raise(status, attempt, "tag \"" + pages.tag() + '"');
    }

    /// Throws if any memory is away or going away.
    void require_resumed(const char* what) {
        require_open(what);
        const std::lock_guard lock{pages.mutex};
        if (pages.paused.empty() && !pausing) return;
        throw Misuse{std::string{what} + ": tag \"" + pages.tag() + "\" is " +
                     (pages.active.empty() ? "paused" : "partly paused") + "; resume it first"};
    }

    /// Whether any of a range, in which blocks live, is paused or being paused.
    [[nodiscard]] bool any_away(Range range) {
        const std::lock_guard lock{pages.mutex};
        for (const auto& batch : pages.paused) {
            for (const Range& away : batch.ranges) {
                if (overlap(away, range)) return true;
            }
        }
        if (!pausing) return false;
        std::size_t here = 0; // what has come since the pause began
        for (const Extent<D>& extent : pages.active) {
            const Address begin = std::max(extent.address(), range.address);
            const Address end = std::min(extent.end(), range.end());
            if (begin < end) here += end - begin;
        }
        return here != range.bytes;
    }

    /// A graph is gone: what it kept is as if given up now, and `own`, the tag's slot, and those of earlier pauses
    /// forget it. Needs no memory.
    void let_go(std::uint64_t graph, const std::shared_ptr<AnySlot>& own) noexcept {
        std::array<std::uint64_t, 64> serials{};
        for (std::size_t count = serials.size(); count == serials.size();) {
            std::size_t next = 0;
            const AnySlot* told = nullptr;
            count = heaps.let_go(graph, serials.size(), [&](std::uint64_t serial) {
                told = own.get(); // which changes under the heaps' locks only
                if (own) own->forget(serial);
                serials[next++] = serial;
            });
            for (std::size_t i = 0; i < count; ++i) pages.forget_block(serials[i], told);
        }
    }

    ArenaPages<D> pages;
    Heaps<D> heaps;
    QuarantinedRanges<D> quarantined; // under the turn
    GrowingRanges growing_blocks;
    bool pausing = false; // guarded by the pages' mutex: a pause has begun and not ended
    std::mutex growing;
    std::atomic<bool> closed{false};
    ForkMark fork_mark;

private:
    /// Takes open memory for a block of `bytes`, unless somebody has grown the arena since `seen`.
    void grow(std::uint64_t seen, std::size_t bytes, std::size_t alignment) {
        const std::lock_guard lock{growing};
        require_open([&] { return "take " + format_bytes(bytes); });
        if (growths_.load() != seen) return;
        const auto offer = [&](Range range) { heaps.add(range); };
        const std::size_t needed = align_up(bytes, pages.granularity());
        const std::size_t step = std::max(needed, growth_step(pages.physical_bytes(), pages.granularity()));
        Range range = pages.take_addresses(step, needed, alignment);
        Status status = pages.grow_into(range, offer);
        if (status.kind == StatusKind::out_of_memory && range.bytes != needed) {
            range = pages.take_addresses(needed, needed, alignment);
            status = pages.grow_into(range, offer);
        }
        if (!status.ok()) pages.raise_no_room(status, "take memory for an allocation", needed);
        growths_ += 1;
    }

    std::atomic<std::uint64_t> growths_{0};
    std::atomic<bool> reserved_{false};
    bool unfinished_ = false; // under the turn: the last step left memory shut that is not paused
};

} // namespace memsaver::inline v0_1
