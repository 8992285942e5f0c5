// All the heaps of an arena: a central one, and small ones that keep threads out of each other's way.
// Knows which bytes are whose; does not know pages, policies or operations.
#pragma once

#include "memsaver/arena/heap_set.hpp"
#include "memsaver/arena/misplaced.hpp"
#include "memsaver/arena/order.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/base/base.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace memsaver::inline v0_1 {

/// Small blocks come from one of a few shards, which lease chunks from the central heap as if they were blocks; a chunk
/// whose blocks are all free goes back. A thread uses the shard that its id hashes to. Thread safe; locks are taken in
/// the order shards, central, and are held for bookkeeping only.
template <Streams D>
class Heaps {
public:
    /// `space`: all addresses that can ever be added; `granularity`: of its ranges.
    Heaps(D driver, Range space, std::size_t granularity)
        : driver_{std::move(driver)}, chunk_bytes_{std::min(std::size_t{1_MiB}, granularity)},
          small_bytes_{chunk_bytes_ / 16}, set_{space, chunk_bytes_} {}

    /// New open memory: free, or one live block.
    void add(Range range, Block::State as = Block::State::free) {
        const std::lock_guard lock{set_.central.mutex};
        set_.central.blocks.add(range, as);
    }

    /// Whether such a block comes from a shard.
    [[nodiscard]] bool small(std::size_t bytes, std::size_t alignment) const noexcept {
        return bytes <= small_bytes_ && alignment <= small_bytes_;
    }

    /// A block from open memory, or 0. `bytes` is a multiple of 256. May throw bad_alloc.
    Address allocate(std::size_t bytes, std::size_t alignment, std::size_t requested) {
        if (!small(bytes, alignment)) {
            const std::lock_guard lock{set_.central.mutex};
            const Block* block = set_.central.allocate(driver_, fences_, bytes, alignment, requested);
            return block == nullptr ? 0 : block->address;
        }
        Heap<D>& shard = set_.shard_of_this_thread();
        const std::lock_guard lock{shard.mutex};
        if (const Block* block = shard.allocate(driver_, fences_, bytes, alignment, requested)) return block->address;
        if (shard.deferred.fenced_bytes() >= most_fenced_in_shard) return 0;
        if (!lease(shard)) return 0;
        return shard.blocks.allocate(bytes, alignment, requested)->address;
    }

    /// Gives a block up. Throws Misuse, naming `tag`, if `address` is not that of a live block; then nothing changed.
    /// Calls `forget(serial)` with the block's serial number, unless a graph keeps it: then its bytes matter still.
    /// Answers whether the block lay in shut memory and was forgotten.
    template <class Forget>
    bool deallocate(Address address, FreeOrder order, const std::string& tag, Forget&& forget) {
        Heap<D>& heap = set_.heap_of(address);
        const std::lock_guard lock{heap.mutex};
        const Block* block = set_.leased(heap, address) ? nullptr : heap.blocks.find(address);
        if (block == nullptr || block->state != Block::State::live) {
            raise_misplaced(heap.blocks, address, block, tag, [&](Address start) { return set_.leased(heap, start); });
        }
        const Range range{address, block->bytes}; // where an unmap failed, a part of it may be open
        const bool shut = operation_ ? heap.blocks.any_shut(range) : heap.blocks.all_shut(range);
        const bool replayed = freed_in_capture(order);
        bool now = order.kind == FreeOrder::Kind::idle;
        if (shut && !replayed) {
            now = !operation_; // paused: no work can touch it; in an operation: stays until that has ended
            if (order.kind != FreeOrder::Kind::marked) order.kind = FreeOrder::Kind::device;
        }
        if (replayed) {
            heap.deferred.keep(address, block->bytes, order.graph);
        } else if (!now) {
            defer(heap, *block, order);
        }
        if (!replayed) forget(block->serial);
        heap.blocks.mark_freed(address);
        if (now) {
            if (const Range chunk = reclaim(heap, address); chunk.bytes != 0) {
                const std::lock_guard central_lock{set_.central.mutex};
                give_back(heap, chunk);
            }
        }
        return shut && !replayed;
    }

    /// A graph is gone: what it kept is as if given up now. Does so for a few blocks, calls `forget(serial)` for each,
    /// and answers how many there were; to be called until there are none. Needs no memory.
    template <class Forget>
    std::size_t let_go(std::uint64_t graph, std::size_t most, Forget&& forget) {
        const auto locks = set_.lock_all();
        std::size_t count = 0;
        const auto from = [&](Heap<D>& heap) {
            count += heap.deferred.let_go(graph, most - count, fences_.last_begun(),
                                          [&](Address address) { forget(heap.blocks.find(address)->serial); });
            if (!operation_) collect_if(heap, [&](Range block) { return heap.blocks.all_shut(block); });
        };
        for (const auto& shard : set_.shards) from(*shard);
        from(set_.central);
        return count;
    }

    // --- for operations, one at a time ---

    /// From here on blocks that are given up in shut memory stay as they are. With `shut`, all that is open now is
    /// shut.
    void begin_operation(bool shut) {
        const auto locks = set_.lock_all();
        settle_locked();
        operation_ = true;
        if (!shut) return;
        for (const auto& shard : set_.shards) shard->blocks.shut_all();
        set_.central.blocks.shut_all();
    }

    /// Ends it. Just the ranges `shut` (sorted) remain shut, or, with null, what is shut now, which takes no time in
    /// proportion to anything. `passed(range)` says which blocks that were given up no work can touch any more. May
    /// throw bad_alloc; what is shut then stays shut until the next operation ends.
    void end_operation(const std::vector<Range>* shut, const std::function<bool(Range)>& passed) {
        const auto locks = set_.lock_all();
        const auto end = [&](Heap<D>& heap) {
            if (shut != nullptr && shut->empty()) {
                heap.blocks.open_all();
            } else if (shut != nullptr) {
                heap.blocks.set_shut(*shut);
            }
            collect_if(heap, passed);
        };
        for (const auto& shard : set_.shards) end(*shard);
        end(set_.central);
        operation_ = false; // not before: what is shut and active would be taken for paused
    }

    /// The free ranges of the central heap of at least `bytes` on a side.
    std::vector<Range> free_ranges(std::size_t bytes, Side side) {
        const auto locks = set_.lock_all();
        settle_locked();
        std::vector<Range> ranges;
        set_.central.blocks.for_each_free(bytes, side, [&](Range range) { ranges.push_back(range); });
        return ranges;
    }

    /// Takes a range out if every byte of it is (still) free.
    bool remove_if_free(Range range, Side side) {
        const std::lock_guard lock{set_.central.mutex};
        bool free = false;
        set_.central.blocks.for_each_free(range.bytes, side, [&](Range held) {
            free = free || (held.address <= range.address && range.end() <= held.end());
        });
        if (free) set_.central.blocks.remove(range);
        return free;
    }

    /// Forgets what waits to be reused, for there will be no reuse, and calls `last()` while nobody can deallocate.
    template <class Last>
    void close(Last&& last) {
        const auto locks = set_.lock_all();
        for (const auto& shard : set_.shards) shard->deferred.clear();
        set_.central.deferred.clear();
        last();
    }

    // --- questions ---

    [[nodiscard]] std::optional<LiveBlock> block_holding(Address address) { return set_.block_holding(address); }
    [[nodiscard]] bool holds(Range range) { return set_.holds(range); }
    [[nodiscard]] std::vector<LiveBlock> live_blocks(const std::vector<Range>& ranges) {
        return set_.live_blocks(ranges);
    }
    [[nodiscard]] typename HeapSet<D>::Sums sums() { return set_.sums(); }

    // --- fences ---

    [[nodiscard]] Fences& fences() noexcept { return fences_; }

    /// Whether waiting for the device would make so much reusable that it is better than taking `growth` more bytes. A
    /// wait costs microseconds on an idle device and any time on a busy one, so it is not for small change. `small`:
    /// the bytes come from this thread's shard, which gives nothing out while too much waits in it.
    [[nodiscard]] bool fence_is_worth_it(std::size_t bytes, bool small, std::size_t growth) {
        const auto fenced = set_.fenced();
        return (small && fenced.in_this_shard >= most_fenced_in_shard) ||
               fenced.bytes >= std::max({bytes, growth, least_worth_a_fence});
    }

    /// Whether anything waits for a fence at all.
    [[nodiscard]] bool anything_fenced() { return set_.fenced().bytes != 0; }

    /// Waits for the whole device, leaving stream captures whole; other threads' launches may stand still meanwhile.
    /// Threads that come while one waits share the next wait. What it makes reusable is found by `allocate`.
    void fence() { fences_.pass(driver_); }

    /// Everything that can be reused becomes free, and chunks that are free go back to the central heap.
    void settle() {
        const auto locks = set_.lock_all();
        settle_locked();
    }

private:
    static constexpr std::size_t most_fenced_in_shard = 4_MiB;
    static constexpr std::size_t least_worth_a_fence = 32_MiB;

    /// A chunk for a locked shard, if the central heap has one.
    bool lease(Heap<D>& shard) {
        const std::lock_guard lock{set_.central.mutex};
        const Block* chunk = set_.central.allocate(driver_, fences_, chunk_bytes_, chunk_bytes_, chunk_bytes_);
        if (chunk == nullptr) return false;
        const Range range{chunk->address, chunk_bytes_};
        try {
            shard.blocks.add(range);
        } catch (...) {
            set_.central.blocks.mark_freed(range.address);
            set_.central.blocks.reclaim(range.address);
            throw;
        }
        set_.lease(range.address, shard);
        return true;
    }

    /// A block of a locked heap becomes free. Answers a chunk that should go back, being free as a whole; one is kept
    /// open for the next small blocks.
    Range reclaim(Heap<D>& heap, Address address) noexcept {
        const Range range = heap.blocks.reclaim(address);
        if (&heap == &set_.central || range.bytes != chunk_bytes_) return {};
        const bool spare = heap.blocks.side(range.address) == Side::open && heap.blocks.free_bytes() < 2 * chunk_bytes_;
        return spare ? Range{} : range;
    }
    /// The same with every lock held.
    void reclaim_locked(Heap<D>& heap, Address address) noexcept {
        if (const Range chunk = reclaim(heap, address); chunk.bytes != 0) give_back(heap, chunk);
    }
    /// Blocks that were given up become free if `gone(range)`, with every lock held.
    template <class Gone>
    void collect_if(Heap<D>& heap, Gone&& gone) {
        heap.deferred.collect_if(
            [&](Address a) {
                return gone(Range{a, heap.blocks.find(a)->bytes});
            },
            [&](Address a) { reclaim_locked(heap, a); });
    }
    /// A free chunk of a locked shard goes back to the locked central heap.
    void give_back(Heap<D>& shard, Range chunk) noexcept {
        try {
            shard.blocks.remove(chunk);
        } catch (const std::bad_alloc&) {
            return; // it stays with the shard
        }
        set_.end_lease(chunk.address);
        set_.central.blocks.mark_freed(chunk.address);
        set_.central.blocks.reclaim(chunk.address);
    }

    /// With every lock held: blocks whose work has passed become free, and free chunks go back.
    void settle_locked() {
        for (const auto& shard : set_.shards) {
            shard->collect(driver_, fences_, [](Range) {});
            std::vector<Range> chunks;
            for (const Side side : {Side::open, Side::shut}) {
                shard->blocks.for_each_free(chunk_bytes_, side, [&](Range range) { chunks.push_back(range); });
            }
            for (const Range& chunk : chunks) give_back(*shard, chunk);
        }
        set_.central.collect(driver_, fences_, [](Range) {});
    }

    /// Whether a graph may write to the block later, be it paused now or not.
    [[nodiscard]] bool freed_in_capture(const FreeOrder& order) const {
        bool capturing = order.kind == FreeOrder::Kind::replayed;
        if (order.kind == FreeOrder::Kind::stream) {
            check(driver_.capturing(order.stream, capturing), "ask whether a stream is being captured");
        }
        return capturing;
    }

    void defer(Heap<D>& heap, const Block& block, const FreeOrder& order) {
        if (order.kind == FreeOrder::Kind::stream) {
            return check(heap.deferred.after_stream(driver_, block.address, order.stream), "mark a stream",
                         block.requested, block.address);
        }
        if (order.kind == FreeOrder::Kind::marked) return heap.deferred.after_mark(block.address, order.mark);
        heap.deferred.after_fence(block.address, block.bytes, fences_.last_begun());
    }

    D driver_;
    std::size_t chunk_bytes_;
    std::size_t small_bytes_;
    Fences fences_;
    HeapSet<D> set_;
    bool operation_ = false; // changed with every lock held
};

} // namespace memsaver::inline v0_1
