// All heaps of an arena: a central one, and shards that reduce lock contention between threads. Knows which bytes
// belong to which block; knows nothing about pages, policies or operations.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/heap/block_allocator.hpp"
#include "memsaver/heap/deferred_frees.hpp"
#include "memsaver/heap/live_block.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Counts fences: moments at which all work submitted to the device before is known to be complete.
class Fences {
public:
    [[nodiscard]] std::uint64_t last_begun() const noexcept { return begun_.load(); }
    [[nodiscard]] std::uint64_t last_done() const noexcept { return done_.load(); }

    /// Call before waiting for the device; pass the returned number to `finish` after a successful wait.
    std::uint64_t begin() noexcept { return begun_.fetch_add(1) + 1; }
    void finish(std::uint64_t fence) noexcept;

    /// Waits until the fence `wanted` is done; it is at most the next one to begin. Threads that arrive during a wait
    /// use it if it suffices, or share the next wait.
    void pass(const AnyDriver& driver, std::uint64_t wanted);

private:
    static constexpr std::chrono::microseconds patience{
        50}; // a sleeping thread wakes up later than an idle device completes

    std::mutex mutex_;
    std::condition_variable passed_;
    std::atomic<bool> passing_{false}; // a thread waits for the device, and others wait for that thread
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> done_{0};
};

/// Blocks, and the freed blocks that cannot be reused yet. All members are guarded by `mutex`. Aligned to its own cache
/// lines.
struct alignas(64) Heap {
    Heap(std::size_t seam, const Seams* seams, std::uint8_t which)
        : blocks{seam, std::uint64_t{which} << 56U, seams}, number{which} {}

    /// Makes freed blocks free once their work has completed.
    void collect(const AnyDriver& driver, const Fences& fences);
    /// See BlockAllocator::allocate; calls `collect` before it returns nullptr.
    const Block* allocate(const AnyDriver& driver, const Fences& fences, std::size_t bytes, std::size_t alignment,
                          std::size_t requested, bool exact = false);

    std::mutex mutex;
    BlockAllocator blocks;
    DeferredFrees deferred;
    const std::uint8_t number; // 0: the central heap
};

/// Blocks of up to 64 KiB come from small shards, which lease chunks of 1 MiB from the central heap. Blocks of 1 to 32
/// MiB come from large shards, which lease exactly the size of each block, in units of 8 KiB, and never split a lease.
/// All other blocks come from the central heap. (Devices with smaller granules use smaller sizes.) In the central heap
/// a lease is a live block. A lease that is entirely free is returned, except for a few that a shard keeps in reserve.
/// A thread uses the shards that its id hashes to.
///
/// Thread-safe. Locks are taken in the order shards, central. They are held for bookkeeping and while marks in streams
/// are recorded and queried, never during a wait.
class Heaps final : private Seams {
public:
    /// `granularity`: alignment of the ranges that are added, in bytes.
    Heaps(AnyDriver driver, std::size_t granularity);
    Heaps(const Heaps&) = delete;
    Heaps& operator=(const Heaps&) = delete;
    ~Heaps();

    /// Adds addresses at which ranges may be added. Strong exception guarantee: may throw std::bad_alloc.
    void add_segment(Range segment);
    /// Returns whether an address lies in a segment. Takes no lock.
    [[nodiscard]] bool contains(Address address) const noexcept { return segment_of(address) != nullptr; }

    /// Adds open memory in a segment, as free memory or as one live block.
    void add(Range range, Block::State as = Block::State::free);
    /// Adds open memory in a segment, each range as one live block. Strong exception guarantee: may throw
    /// std::bad_alloc.
    void add_live(const std::vector<Range>& blocks);

    /// Allocates a block from open memory, or returns 0. `bytes` is a multiple of 256. With a stream, blocks freed with
    /// that stream are tried first. May throw std::bad_alloc.
    Address allocate(std::size_t bytes, std::size_t alignment, std::size_t requested,
                     const std::optional<StreamRef>& stream = {});

    /// Returns a block that another thread freed with `stream`, from that thread's shard, or 0. Takes the shards' locks
    /// one after the other. Called after `allocate` has found nothing, before the arena grows.
    Address reuse_from_other_threads(std::size_t bytes, std::size_t alignment, std::size_t requested, StreamRef stream);

    /// Returns whether to wait for the device, so that freed memory can be reused, rather than to map `growth` more
    /// bytes. A wait costs microseconds on an idle device, and any time on a busy one, to which other threads submit no
    /// work in the meantime; so small amounts do not justify it. The result is true if so much waits that this thread's
    /// shard serves no allocation. Otherwise, for a block from a shard, the total waiting must be twice as much as
    /// large shards may hold back.
    [[nodiscard]] bool fence_is_worth_it(std::size_t bytes, std::size_t alignment, std::size_t growth);
    /// Returns whether waiting for the device would make anything reusable.
    [[nodiscard]] bool anything_waits();
    /// Waits for the whole device. Keeps stream captures intact; launches by other threads may block in the meantime.
    /// Threads that arrive during a wait share the next one. `allocate` then finds the reusable memory.
    void fence() { fences_.pass(driver_, fences_.last_begun() + 1); }
    /// Like `fence`, but waits only for the longest-waiting block in the heap that would serve such an allocation, if
    /// anything waits there. Returns whether everything that waited in any heap has completed.
    bool fence_for(std::size_t bytes, std::size_t alignment);
    [[nodiscard]] Fences& fences() noexcept { return fences_; }
    /// Makes all reusable blocks free, and returns free leases to the central heap.
    void settle();

    using Forget = FunctionRef<void(std::uint64_t)>;
    /// Deallocates a block. Throws Misuse, naming `tag`, if `address` is not the address of a live block; then nothing
    /// changed. Calls `forget(serial)` with the block's serial number, unless a graph keeps the block: then its bytes
    /// still matter. Returns whether the block lay in shut memory and was forgotten.
    bool deallocate(Address address, const FreeOrder& order, const std::string& tag, Forget forget);

    /// Removes blocks made by `add_live`, together with their bytes; calls `forget(serial)` for each. Strong exception
    /// guarantee: may throw std::bad_alloc.
    void take_out(const std::vector<Range>& blocks, Forget forget);

    /// Treats the blocks kept by a graph that is gone as deallocated now. Processes at most `most` blocks, calls
    /// `forget(serial)` for each, and returns how many there were; call until it returns 0. Does not allocate.
    std::size_t end_graph(std::uint64_t graph, std::size_t most, Forget forget);

    // --- for operations, one at a time ---

    /// Begins an operation: from here on, blocks deallocated in shut memory stay as they are. With `shut`, shuts all
    /// open memory.
    void begin_operation(bool shut);

    /// Ends the operation. Only the sorted ranges `shut` remain shut; with null, all sides stay as they are,
    /// at no cost per block. `passed(range)` returns whether no work can touch a deallocated block any more. May throw
    /// std::bad_alloc; shut memory then stays shut until the next operation ends.
    void end_operation(const std::vector<Range>* shut, FunctionRef<bool(Range)> passed);

    /// The free ranges of the central heap on a side with at least `bytes` bytes.
    std::vector<Range> free_ranges(std::size_t bytes, Side side);

    /// Removes a range if every byte of it is still free.
    bool remove_if_free(Range range, Side side);

    /// Discards all blocks that wait to be reused, and calls `last()` while no thread can deallocate.
    void close(FunctionRef<void()> last);

    // --- queries; each heap is locked in turn ---

    /// The live block that contains an address.
    [[nodiscard]] std::optional<LiveBlock> block_holding(Address address);
    /// Returns whether every byte lies in a live block. A growing block is a row of live blocks.
    [[nodiscard]] bool holds(Range range);
    /// The live blocks that overlap `ranges`, which are sorted. Includes blocks kept by graphs, because replays may
    /// read them.
    [[nodiscard]] std::vector<LiveBlock> live_blocks(const std::vector<Range>& ranges);

    struct Sums {
        std::size_t live_bytes = 0; ///< as requested
        std::size_t live_blocks = 0;
    };
    [[nodiscard]] Sums sums();

private:
    enum class Size : unsigned char { small, large, huge };
    static constexpr std::size_t shards_of_a_size = 32;
    static constexpr std::size_t shard_count = 2 * shards_of_a_size;
    static constexpr std::size_t most_spare_in_large_shard = 64_MiB;
    /// Bytes that do not justify a fence, which takes 2 to 3 us on an idle device: a five-hundredth of the device's
    /// memory, within these bounds.
    static constexpr std::size_t least_fence_threshold = 32_MiB;
    static constexpr std::size_t most_fence_threshold = 128_MiB;
    /// `least_fence_threshold` until the device has been queried, which must not happen under a lock because it may be
    /// busy.
    [[nodiscard]] std::size_t fence_threshold() const noexcept;
    void query_fence_threshold() noexcept;
    /// Returns whether so much waits in a locked shard that it serves no allocation before the device has completed it.
    /// A fence serves all shards.
    [[nodiscard]] bool too_much_waits(const Heap& shard, Size size, std::size_t bytes) const noexcept;
    static constexpr std::size_t most_fenced_in_small_shard = 4_MiB;

    /// The lease of each unit of a segment: the number of the shard or 0, and whether a lease starts there.
    struct Segment {
        struct Free {
            void operator()(std::atomic<std::uint8_t>* owners) const noexcept;
        };
        Range range;
        std::unique_ptr<std::atomic<std::uint8_t>[], Free> owners;
    };
    static constexpr std::uint8_t lease_start = 0x80;
    using Segments = std::vector<const Segment*>; // sorted; never modified, only replaced

    struct Locks {
        std::unique_lock<std::mutex> making;
        std::array<std::unique_lock<std::mutex>, shard_count> shards;
        std::unique_lock<std::mutex> central;
    };

    [[nodiscard]] MEMSAVER_INLINE bool at(Address border) const noexcept override;
    [[nodiscard]] const Segment* segment_of(Address address) const noexcept;
    [[nodiscard]] std::uint8_t owner(Address address) const noexcept; // including the lease_start bit
    [[nodiscard]] Size size_of(std::size_t bytes, std::size_t alignment) const noexcept;
    /// The heap that contains the block at `address`, if any. Callers that need certainty ask again under its lock.
    [[nodiscard]] Heap& heap_of(Address address) noexcept;
    [[nodiscard]] Heap& shard_of_this_thread(Size size);
    [[nodiscard]] Locks lock_all() noexcept;
    /// Calls `act(heap)` for each existing heap, the central one last.
    template <class Act>
    void each_heap(Act&& act) {
        for (const auto& shard : shards_) {
            if (Heap* const heap = shard.load()) act(*heap);
        }
        act(central_);
    }
    [[nodiscard]] bool leased(const Heap& heap, Address address) const noexcept {
        return &heap == &central_ && owner(address) != 0;
    }

    /// Returns a block of a locked heap that was freed with `stream`, at least `bytes` large and at most a quarter
    /// larger, or 0.
    Address reuse(Heap& heap, std::size_t bytes, std::size_t alignment, std::size_t requested, StreamRef stream);

    /// Leases `bytes` to a locked shard, if the central heap has enough free memory.
    bool lease(Heap& shard, std::size_t bytes, std::size_t alignment);
    /// Records the owner of a range; 0: none.
    void note_owner(Range range, std::uint8_t number) noexcept;
    /// Makes a freed block of a locked heap free. Returns the lease to give back, if that is entirely free and the
    /// shard has enough in reserve.
    Range reclaim(Heap& heap, Address address) noexcept;
    /// Returns whether a free range of a shard is exactly one lease.
    [[nodiscard]] bool whole_lease(Range range) const noexcept;
    /// Returns a free lease of a locked shard to the locked central heap.
    void give_back(Heap& shard, Range lease) noexcept;
    /// With every lock held: makes blocks free whose work has completed, and returns free leases.
    void settle_locked();
    void collect_if(Heap& heap, FunctionRef<bool(Range)> gone);

    /// The kind of `order` in the current state of its stream; throws the exception for a failing driver call.
    [[nodiscard]] FreeOrder::Kind kind_now(const FreeOrder& order) const;
    void defer(Heap& heap, const Block& block, FreeOrder::Kind kind, const FreeOrder& order);

    // Members that every thread reads and that rarely change are kept apart from members that change often: a cache
    // line written by one core causes a miss on all others.
    static constexpr std::size_t cache_line = 64;
    AnyDriver driver_;
    std::size_t unit_;                            ///< unit of leases, in bytes
    std::size_t chunk_;                           ///< size of a small shard's lease
    std::atomic<std::size_t> fence_threshold_{0}; ///< 0: not queried yet
    std::atomic<const Segments*> segments_{nullptr};
    std::array<std::atomic<Heap*>, shard_count> shards_{}; // made on first use
    std::atomic<std::size_t> large_shards_{0};             // number of large shards made
    bool operation_ = false;                               // changed with every lock held
    alignas(cache_line) Fences fences_;
    alignas(cache_line) std::mutex making_; // held while a shard or segment is made; taken before all others
    std::vector<std::unique_ptr<Segment>> segment_list_;
    std::vector<std::unique_ptr<const Segments>> all_segments_; // readers may still use an older one
    Heap central_{0, nullptr, 0};
    std::size_t lease_count_ = 0; // guarded by the central lock
    std::size_t leased_bytes_ = 0;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/heaps.ipp"
#endif
