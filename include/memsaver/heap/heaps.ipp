// Definitions of heaps.hpp.
#pragma once

#include "memsaver/driver/streams.hpp"
#include "memsaver/heap/heaps.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void Fences::finish(std::uint64_t fence) noexcept {
    std::uint64_t done = done_.load();
    while (done < fence && !done_.compare_exchange_weak(done, fence)) {
    }
}

MEMSAVER_INLINE void Fences::pass(const AnyDriver& driver, std::uint64_t wanted) {
    if (passing_.load()) {
        const auto until = std::chrono::steady_clock::now() + patience;
        while (last_done() < wanted && passing_.load() && std::chrono::steady_clock::now() < until) {
            std::this_thread::yield();
        }
    }
    std::unique_lock lock{mutex_};
    passed_.wait(lock, [&] { return last_done() >= wanted || !passing_.load(); });
    if (last_done() >= wanted) return;
    passing_ = true;
    const std::uint64_t number = begin();
    lock.unlock();
    const Status status = driver.drain();
    lock.lock();
    if (status.ok()) finish(number);
    passing_ = false;
    lock.unlock();
    passed_.notify_all();
    check(status, "wait for the device before reusing freed memory");
}

MEMSAVER_INLINE void Heap::collect(const AnyDriver& driver, const Fences& fences) {
    deferred.collect(driver, fences.last_done(), [&](Address address) { blocks.reclaim(address); });
}

MEMSAVER_INLINE const Block* Heap::allocate(const AnyDriver& driver, const Fences& fences, std::size_t bytes,
                                            std::size_t alignment, std::size_t requested, bool exact) {
    if (const Block* block = blocks.allocate(bytes, alignment, requested, exact)) return block;
    collect(driver, fences);
    return blocks.allocate(bytes, alignment, requested, exact);
}

MEMSAVER_INLINE Heaps::Heaps(AnyDriver driver, std::size_t granularity)
    : driver_{std::move(driver)}, unit_{std::min(std::size_t{8_KiB}, granularity)}, chunk_{std::min(std::size_t{1_MiB},
                                                                                                    granularity)} {}

MEMSAVER_INLINE Heaps::~Heaps() {
    for (const auto& shard : shards_) delete shard.load();
}

// --- segments and leases ---

MEMSAVER_INLINE void Heaps::Segment::Free::operator()(std::atomic<std::uint8_t>* bytes) const noexcept {
    std::free(bytes);
}

MEMSAVER_INLINE void Heaps::add_segment(Range range) {
    auto segment = std::make_unique<Segment>();
    segment->range = range;
    // calloc provides zero pages on first touch: most of a large segment is never touched.
    static_assert(std::atomic<std::uint8_t>::is_always_lock_free && sizeof(std::atomic<std::uint8_t>) == 1);
    segment->owners.reset(static_cast<std::atomic<std::uint8_t>*>(std::calloc(range.bytes / unit_ + 1, 1)));
    if (segment->owners == nullptr) throw std::bad_alloc{};
    const std::lock_guard lock{making_};
    auto next = std::make_unique<Segments>();
    if (const Segments* const known = segments_.load()) *next = *known;
    next->insert(std::upper_bound(next->begin(), next->end(), range.address,
                                  [](Address a, const Segment* each) { return a < each->range.address; }),
                 segment.get());
    segment_list_.reserve(segment_list_.size() + 1);
    all_segments_.reserve(all_segments_.size() + 1);
    segments_.store(next.get());
    segment_list_.push_back(std::move(segment));
    all_segments_.push_back(std::move(next));
}

MEMSAVER_INLINE const Heaps::Segment* Heaps::segment_of(Address address) const noexcept {
    const Segments* const known = segments_.load();
    if (known == nullptr) return nullptr;
    const auto after = std::upper_bound(known->begin(), known->end(), address,
                                        [](Address a, const Segment* each) { return a < each->range.address; });
    if (after == known->begin()) return nullptr;
    const Segment* const segment = *std::prev(after);
    return address < segment->range.end() ? segment : nullptr;
}

MEMSAVER_INLINE std::uint8_t Heaps::owner(Address address) const noexcept {
    const Segment* const segment = segment_of(address);
    return segment == nullptr
               ? std::uint8_t{0}
               : segment->owners[(address - segment->range.address) / unit_].load(std::memory_order_acquire);
}

MEMSAVER_INLINE void Heaps::note_owner(Range range, std::uint8_t number) noexcept {
    const Segment& segment = *segment_of(range.address);
    const std::size_t first = (range.address - segment.range.address) / unit_;
    // A thread that needs certainty reads the owner again under the lock of the heap; others may see the change late.
    const auto note = [&](std::size_t i, std::uint8_t owner) {
        segment.owners[i].store(owner, std::memory_order_release);
    };
    for (std::size_t i = 0; i < range.bytes / unit_; ++i) note(first + i, number);
    if (number != 0) note(first, static_cast<std::uint8_t>(number | lease_start));
}

MEMSAVER_INLINE bool Heaps::at(Address border) const noexcept { return (owner(border) & lease_start) != 0; }

MEMSAVER_INLINE bool Heaps::whole_lease(Range range) const noexcept {
    const std::uint8_t first = owner(range.address);
    if ((first & lease_start) == 0 || range.address % unit_ != 0 || range.bytes % unit_ != 0) return false;
    const std::uint8_t next = owner(range.end());
    return (next & lease_start) != 0 || next != (first & ~lease_start);
}

MEMSAVER_INLINE Heaps::Size Heaps::size_of(std::size_t bytes, std::size_t alignment) const noexcept {
    if (bytes <= chunk_ / 16 && alignment <= chunk_ / 16) return Size::small;
    return bytes >= chunk_ && bytes <= 32 * chunk_ && alignment <= chunk_ ? Size::large : Size::huge;
}

MEMSAVER_INLINE Heap& Heaps::heap_of(Address address) noexcept {
    const auto number = static_cast<std::uint8_t>(owner(address) & ~lease_start);
    return number == 0 ? central_ : *shards_[number - 1U].load();
}

MEMSAVER_INLINE Heap& Heaps::shard_of_this_thread(Size size) {
    std::uint64_t id = static_cast<std::uint64_t>(pthread_self()) >> 8U;
    id *= 0xFF51AFD7ED558CCDULL; // thread ids differ in few, regular bits: mix them as MurmurHash3 does
    id ^= id >> 33U;
    id *= 0xC4CEB9FE1A85EC53ULL;
    static_assert(shards_of_a_size == 32);
    const std::size_t index = static_cast<std::size_t>(id >> 59U) + (size == Size::large ? shards_of_a_size : 0);
    if (Heap* const heap = shards_[index].load()) return *heap;
    const std::lock_guard lock{making_};
    if (shards_[index].load() == nullptr) {
        shards_[index].store(new Heap{unit_, this, static_cast<std::uint8_t>(index + 1)});
        if (size == Size::large) large_shards_ += 1;
    }
    return *shards_[index].load();
}

MEMSAVER_INLINE Heaps::Locks Heaps::lock_all() noexcept {
    Locks locks;
    locks.making = std::unique_lock{making_};
    for (std::size_t i = 0; i < shard_count; ++i) {
        if (Heap* const heap = shards_[i].load()) locks.shards[i] = std::unique_lock{heap->mutex};
    }
    locks.central = std::unique_lock{central_.mutex};
    return locks;
}

MEMSAVER_INLINE bool Heaps::lease(Heap& shard, std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock{central_.mutex};
    const Block* block = central_.allocate(driver_, fences_, bytes, std::max(alignment, unit_), bytes);
    if (block == nullptr) return false;
    const Range range{block->address, bytes};
    note_owner(range, shard.number);
    try {
        shard.blocks.add(range);
    } catch (...) {
        note_owner(range, 0);
        central_.blocks.mark_freed(*block);
        central_.blocks.reclaim(range.address);
        throw;
    }
    lease_count_ += 1;
    leased_bytes_ += bytes;
    return true;
}

MEMSAVER_INLINE void Heaps::give_back(Heap& shard, Range lease) noexcept {
    try {
        shard.blocks.remove(lease);
    } catch (const std::bad_alloc&) {
        return; // the shard keeps the lease
    }
    note_owner(lease, 0);
    central_.blocks.mark_freed(*central_.blocks.find(lease.address));
    central_.blocks.reclaim(lease.address);
    lease_count_ -= 1;
    leased_bytes_ -= lease.bytes;
}

MEMSAVER_INLINE Range Heaps::reclaim(Heap& heap, Address address) noexcept {
    const Range range = heap.blocks.reclaim(address);
    if (heap.number == 0 || !whole_lease(range)) return {};
    const std::size_t spare = heap.number > shards_of_a_size ? most_spare_in_large_shard : 2 * chunk_ - 1;
    return heap.blocks.side(range.address) == Side::open && heap.blocks.free_bytes() <= spare ? Range{} : range;
}

// --- blocks ---

MEMSAVER_INLINE void Heaps::add(Range range, Block::State as) {
    const std::lock_guard lock{central_.mutex};
    central_.blocks.add(range, as);
}

MEMSAVER_INLINE void Heaps::add_live(const std::vector<Range>& blocks) {
    const std::lock_guard lock{central_.mutex};
    central_.blocks.add_live(blocks);
}

MEMSAVER_INLINE void Heaps::take_out(const std::vector<Range>& blocks, Forget forget) {
    const std::lock_guard lock{central_.mutex};
    central_.blocks.reserve_to_take_out(blocks.size());
    for (const Range& block : blocks) {
        forget(central_.blocks.find(block.address)->serial);
        central_.blocks.take_out(block.address);
    }
}

MEMSAVER_INLINE Address Heaps::reuse(Heap& heap, std::size_t bytes, std::size_t alignment, std::size_t requested,
                                     StreamRef stream) {
    if (stream.per_thread()) return 0; // the same handle is another stream on each thread
    // Captured work runs later, in any stream: the work that the block waits for may not have completed by then.
    std::optional<bool> eager;
    const auto usable = [&](Address address) {
        if (address % alignment != 0 || heap.blocks.any_shut({address, heap.blocks.find(address)->bytes})) return false;
        if (!eager) {
            bool capturing = true;
            eager = driver_.capturing(stream, capturing).ok() && !capturing;
        }
        return *eager;
    };
    const Address address = heap.deferred.take(stream, bytes, usable);
    if (address != 0) heap.blocks.revive(address, requested);
    return address;
}

MEMSAVER_INLINE Address Heaps::reuse_from_other_threads(std::size_t bytes, std::size_t alignment, std::size_t requested,
                                                        StreamRef stream) {
    const Size size = size_of(bytes, alignment);
    if (size == Size::huge) return 0; // the central heap serves all threads
    if (size == Size::large) bytes = align_up(bytes, unit_);
    const std::size_t first = size == Size::large ? shards_of_a_size : 0;
    for (std::size_t i = first; i < first + shards_of_a_size; ++i) {
        Heap* const heap = shards_[i].load();
        if (heap == nullptr) continue;
        const std::lock_guard lock{heap->mutex};
        if (const Address address = reuse(*heap, bytes, alignment, requested, stream)) return address;
    }
    return 0;
}

MEMSAVER_INLINE Address Heaps::allocate(std::size_t bytes, std::size_t alignment, std::size_t requested,
                                        const std::optional<StreamRef>& stream) {
    const Size size = size_of(bytes, alignment);
    if (size == Size::large) bytes = align_up(bytes, unit_);
    Heap& heap = size == Size::huge ? central_ : shard_of_this_thread(size);
    const std::lock_guard lock{heap.mutex};
    if (stream) {
        if (const Address address = reuse(heap, bytes, alignment, requested, *stream)) return address;
    }
    const bool exact = size == Size::large;
    if (const Block* block = heap.allocate(driver_, fences_, bytes, alignment, requested, exact)) return block->address;
    if (size == Size::huge) return 0;
    if (too_much_waits(heap, size, bytes)) return 0;
    if (!lease(heap, size == Size::small ? chunk_ : bytes, size == Size::small ? chunk_ : alignment)) return 0;
    return heap.blocks.allocate(bytes, alignment, requested, exact)->address;
}

/// The limit on waiting bytes for each of `shards` large shards: a single shard may hold all of the small change,
/// several may hold half of it each, and many shards four times as much in total.
MEMSAVER_INLINE std::size_t part_of(std::size_t fence_threshold, std::size_t shards) noexcept {
    if (shards < 2) return fence_threshold;
    return std::max(std::size_t{32_MiB}, std::min(fence_threshold / 2, 4 * fence_threshold / shards));
}

MEMSAVER_INLINE bool Heaps::fence_is_worth_it(std::size_t bytes, std::size_t alignment, std::size_t growth) {
    const Size size = size_of(bytes, alignment);
    std::size_t waiting = 0;
    each_heap([&](Heap& heap) { waiting += heap.deferred.fenced_bytes(); });
    if (waiting >= least_fence_threshold) query_fence_threshold();
    if (size != Size::huge) {
        Heap& shard = shard_of_this_thread(size);
        const std::lock_guard lock{shard.mutex};
        if (too_much_waits(shard, size, bytes)) return true;
    }
    if (waiting < std::max({bytes, growth, least_fence_threshold})) return false;
    if (size == Size::huge) return waiting >= fence_threshold();
    const std::size_t shards = large_shards_.load(); // reclaiming from all shards takes every lock, so require more
                                                     // than they may hold back
    return waiting / 2 >= std::max<std::size_t>(1, shards) * part_of(fence_threshold(), shards);
}

MEMSAVER_INLINE bool Heaps::fence_for(std::size_t bytes, std::size_t alignment) {
    const Size size = size_of(bytes, alignment);
    Heap& heap = size == Size::huge ? central_ : shard_of_this_thread(size);
    std::uint64_t wanted = 0;
    {
        const std::lock_guard lock{heap.mutex};
        wanted = heap.deferred.first_fence();
    }
    const std::uint64_t next = fences_.last_begun() + 1;
    fences_.pass(driver_, wanted == 0 ? next : wanted);
    return fences_.last_done() >= next;
}

MEMSAVER_INLINE void Heaps::query_fence_threshold() noexcept {
    DeviceMemory memory;
    if (fence_threshold_.load() != 0 || !driver_.memory(memory).ok()) return;
    fence_threshold_.store(std::clamp(memory.total_bytes / 512, least_fence_threshold, most_fence_threshold));
}

MEMSAVER_INLINE std::size_t Heaps::fence_threshold() const noexcept {
    return std::max(fence_threshold_.load(), least_fence_threshold);
}

MEMSAVER_INLINE bool Heaps::too_much_waits(const Heap& shard, Size size, std::size_t bytes) const noexcept {
    const std::size_t waiting = shard.deferred.fenced_bytes();
    if (size == Size::small) return waiting >= most_fenced_in_small_shard;
    return waiting >= std::max(bytes, least_fence_threshold) &&
           waiting >= part_of(fence_threshold(), large_shards_.load());
}

MEMSAVER_INLINE bool Heaps::anything_waits() {
    bool any = false;
    each_heap([&](Heap& heap) {
        const std::lock_guard lock{heap.mutex};
        any = any || heap.deferred.any_waiting();
    });
    return any;
}

MEMSAVER_INLINE void Heaps::settle() {
    const auto locks = lock_all();
    settle_locked();
}

MEMSAVER_INLINE void Heaps::settle_locked() {
    each_heap([&](Heap& heap) {
        heap.collect(driver_, fences_);
        if (heap.number == 0) return;
        std::vector<Range> leases;
        for (const Side side : {Side::open, Side::shut}) {
            heap.blocks.for_each_free(unit_, side, [&](Range range) {
                if (whole_lease(range)) leases.push_back(range);
            });
        }
        for (const Range& lease : leases) give_back(heap, lease);
    });
}

MEMSAVER_INLINE bool Heaps::deallocate(Address address, const FreeOrder& order, const std::string& tag, Forget forget) {
    Heap& heap = heap_of(address);
    const std::lock_guard lock{heap.mutex};
    const Block* block = leased(heap, address) ? nullptr : heap.blocks.find(address);
    if (block == nullptr || block->state != Block::State::live) [[unlikely]] {
        if (!contains(address)) {
            throw Misuse{"deallocate(" + format_address(address) + "): not a pointer of tag \"" + tag + '"'};
        }
        raise_misplaced(heap.blocks, address, block, tag, [&](Address start) { return leased(heap, start); });
    }
    FreeOrder::Kind kind = kind_now(order);
    const Range range{address, block->bytes}; // after a failed unmap, a part of it may be open
    const bool shut = operation_ ? heap.blocks.any_shut(range) : heap.blocks.all_shut(range);
    const bool replayed = kind == FreeOrder::Kind::replayed;
    bool now = kind == FreeOrder::Kind::idle;
    if (shut && !replayed) {
        now = !operation_; // paused: no work can touch it; in an operation: it waits until the operation has ended
        if (kind != FreeOrder::Kind::marked) kind = FreeOrder::Kind::device;
    }
    if (replayed) {
        heap.deferred.keep(address, block->bytes, order.graph);
    } else if (!now) {
        defer(heap, *block, kind, order);
    }
    if (!replayed) forget(block->serial);
    heap.blocks.mark_freed(*block);
    if (now) {
        if (const Range lease = reclaim(heap, address); lease.bytes != 0) {
            const std::lock_guard central_lock{central_.mutex};
            give_back(heap, lease);
        }
    }
    return shut && !replayed;
}

MEMSAVER_INLINE std::size_t Heaps::end_graph(std::uint64_t graph, std::size_t most, Forget forget) {
    const auto locks = lock_all();
    std::size_t count = 0;
    each_heap([&](Heap& heap) {
        count += heap.deferred.end_graph(graph, most - count, fences_.last_begun(),
                                         [&](Address address) { forget(heap.blocks.find(address)->serial); });
        if (!operation_) collect_if(heap, [&](Range block) { return heap.blocks.all_shut(block); });
    });
    return count;
}

/// With every lock held: makes deallocated blocks free for which `gone(range)` is true.
MEMSAVER_INLINE void Heaps::collect_if(Heap& heap, FunctionRef<bool(Range)> gone) {
    heap.deferred.collect_if(
        [&](Address a) {
            return gone(Range{a, heap.blocks.find(a)->bytes});
        },
        [&](Address a) {
            if (const Range lease = reclaim(heap, a); lease.bytes != 0) give_back(heap, lease);
        });
}

// --- operations ---

MEMSAVER_INLINE void Heaps::begin_operation(bool shut) {
    const auto locks = lock_all();
    settle_locked();
    operation_ = true;
    if (shut) each_heap([](Heap& heap) { heap.blocks.shut_all(); });
}

MEMSAVER_INLINE void Heaps::end_operation(const std::vector<Range>* shut, FunctionRef<bool(Range)> passed) {
    const auto locks = lock_all();
    each_heap([&](Heap& heap) {
        if (shut != nullptr && shut->empty()) {
            heap.blocks.open_all();
        } else if (shut != nullptr) {
            heap.blocks.set_shut(*shut);
        }
        collect_if(heap, passed);
    });
    operation_ = false; // only now: otherwise shut memory that is still active would be treated as paused
}

MEMSAVER_INLINE std::vector<Range> Heaps::free_ranges(std::size_t bytes, Side side) {
    const auto locks = lock_all();
    settle_locked();
    std::vector<Range> ranges;
    central_.blocks.for_each_free(bytes, side, [&](Range range) { ranges.push_back(range); });
    return ranges;
}

MEMSAVER_INLINE bool Heaps::remove_if_free(Range range, Side side) {
    const std::lock_guard lock{central_.mutex};
    bool free = false;
    central_.blocks.for_each_free(range.bytes, side, [&](Range held) {
        free = free || (held.address <= range.address && range.end() <= held.end());
    });
    if (free) central_.blocks.remove(range);
    return free;
}

MEMSAVER_INLINE void Heaps::close(FunctionRef<void()> last) {
    const auto locks = lock_all();
    each_heap([](Heap& heap) { heap.deferred.clear(); });
    last();
}

// --- queries ---

MEMSAVER_INLINE std::optional<LiveBlock> Heaps::block_holding(Address address) {
    Heap& heap = heap_of(address);
    const std::lock_guard lock{heap.mutex};
    std::optional<LiveBlock> found;
    const auto take = [&](const Block& block) {
        if (leased(heap, block.address)) return;
        if (block.address <= address && address - block.address < block.used_bytes()) {
            found = LiveBlock{block.address, block.used_bytes(), block.serial, block.requested};
        }
    };
    const Block* exact = heap.blocks.find(address);
    if (exact != nullptr && exact->state == Block::State::live) take(*exact);
    if (!found) heap.blocks.for_each_live(take);
    return found;
}

MEMSAVER_INLINE bool Heaps::holds(Range range) {
    for (Address at = range.address; at < range.end();) {
        const std::optional<LiveBlock> block = block_holding(at);
        if (!block) return false;
        at = block->address + block->bytes;
    }
    return true;
}

MEMSAVER_INLINE std::vector<LiveBlock> Heaps::live_blocks(const std::vector<Range>& ranges) {
    std::vector<LiveBlock> live;
    each_heap([&](Heap& heap) {
        const std::lock_guard lock{heap.mutex};
        const auto take = [&](const Block& block) {
            if (leased(heap, block.address)) return;
            const auto next = std::upper_bound(ranges.begin(), ranges.end(), block.address,
                                               [](Address a, const Range& range) { return a < range.end(); });
            if (next == ranges.end() || next->address >= block.address + block.bytes) return;
            live.push_back({block.address, block.used_bytes(), block.serial, block.requested});
        };
        heap.blocks.for_each_live(take);
        heap.deferred.for_each_kept([&](Address address) { take(*heap.blocks.find(address)); });
    });
    return live;
}

MEMSAVER_INLINE Heaps::Sums Heaps::sums() {
    Sums sums;
    each_heap([&](Heap& heap) {
        const std::lock_guard lock{heap.mutex};
        sums.live_bytes += heap.blocks.live_bytes();
        sums.live_blocks += heap.blocks.live_blocks();
        if (heap.number != 0) return;
        sums.live_bytes -= leased_bytes_;
        sums.live_blocks -= lease_count_;
    });
    return sums;
}

// --- streams ---

MEMSAVER_INLINE FreeOrder::Kind Heaps::kind_now(const FreeOrder& order) const {
    if (order.kind != FreeOrder::Kind::stream) return order.kind;
    if (order.stream.per_thread()) return FreeOrder::Kind::device; // the handle names a different stream in each thread
    if (!being_captured(driver_, order.stream)) return order.kind;
    // The default stream cannot be captured. It reports a capture while a stream that synchronizes with it is captured:
    // a mark in it would break that capture, so the block waits for the whole device.
    return order.stream == StreamRef{} ? FreeOrder::Kind::device : FreeOrder::Kind::replayed;
}

MEMSAVER_INLINE void Heaps::defer(Heap& heap, const Block& block, FreeOrder::Kind kind, const FreeOrder& order) {
    if (kind == FreeOrder::Kind::stream) {
        return check(heap.deferred.after_stream(driver_, block.address, block.bytes, order.stream),
                     "record a CUDA event for a deallocation", block.requested, block.address);
    }
    if (kind == FreeOrder::Kind::marked) return heap.deferred.after_mark(block.address, order.mark);
    heap.deferred.after_fence(block.address, block.bytes, fences_.last_begun());
}

} // namespace detail

} // namespace memsaver::inline v0_3
