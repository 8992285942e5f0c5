// All the heaps of an arena: a central one, and shards that keep threads out of each other's way.
// Knows which bytes are whose; does not know pages, policies or operations.
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

namespace memsaver::inline v0_2 {

namespace detail {

/// The count of fences: moments at which everything that the device had been given is known to have passed.
class Fences {
public:
    [[nodiscard]] std::uint64_t last_begun() const noexcept { return begun_.load(); }
    [[nodiscard]] std::uint64_t last_done() const noexcept { return done_.load(); }

    /// Before waiting for the device; its number is for `finish`, after a wait that succeeded.
    std::uint64_t begin() noexcept { return begun_.fetch_add(1) + 1; }
    void finish(std::uint64_t fence) noexcept;

    /// Waits until the fence `wanted`, at most the one that begins next, is done. Threads that come while one waits go
    /// on with it, or share the next wait.
    void pass(const AnyDriver& driver, std::uint64_t wanted);

private:
    static constexpr std::chrono::microseconds patience{
        50}; // a thread that sleeps wakes later than an idle device answers

    std::mutex mutex_;
    std::condition_variable passed_;
    std::atomic<bool> passing_{false}; // a thread waits for the device, and others for it
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> done_{0};
};

/// Blocks, and those of them that cannot be used again yet. Everything is guarded by `mutex`. In cache lines of its
/// own.
struct alignas(64) Heap {
    Heap(std::size_t seam, const Seams* seams, std::uint8_t which)
        : blocks{seam, std::uint64_t{which} << 56U, seams}, number{which} {}

    /// Makes blocks whose work has passed free again.
    void collect(const AnyDriver& driver, const Fences& fences);
    /// See BlockAllocator::allocate; collects before it answers nullptr.
    const Block* allocate(const AnyDriver& driver, const Fences& fences, std::size_t bytes, std::size_t alignment,
                          std::size_t requested, bool exact = false);

    std::mutex mutex;
    BlockAllocator blocks;
    DeferredFrees deferred;
    const std::uint8_t number; // 0: the central heap
};

/// Blocks of up to 64 KiB come from small shards, which lease chunks of 1 MiB from the central heap; blocks of 1 to
/// 32 MiB from large shards, which lease just what each block needs, in units of 8 KiB, and never cut a lease; all
/// others from the central heap itself. (On a device of smaller granules the sizes are smaller.) To the central heap a
/// lease is a live block. A lease that is free as a whole goes back, but for a few that a shard keeps for what comes
/// next. A thread uses the shards that its id hashes to.
///
/// Thread safe. Locks are taken in the order shards, central. They are held for bookkeeping, and while marks in streams
/// are recorded and asked about; never while somebody waits.
class Heaps final : private Seams {
public:
    /// `granularity`: of the ranges that are added.
    Heaps(AnyDriver driver, std::size_t granularity);
    Heaps(const Heaps&) = delete;
    Heaps& operator=(const Heaps&) = delete;
    ~Heaps();

    /// Addresses that ranges may be added at. May throw bad_alloc; then nothing changed.
    void add_segment(Range segment);
    /// Whether an address lies in a segment. Takes no lock.
    [[nodiscard]] bool contains(Address address) const noexcept { return segment_of(address) != nullptr; }

    /// New open memory in a segment: free, or one live block.
    void add(Range range, Block::State as = Block::State::free);
    /// New open memory in a segment, each range one live block. May throw bad_alloc; then nothing changed.
    void add_live(const std::vector<Range>& blocks);

    /// A block from open memory, or 0. `bytes` is a multiple of 256. With a stream, first from what was freed with it.
    /// May throw bad_alloc.
    Address allocate(std::size_t bytes, std::size_t alignment, std::size_t requested,
                     const std::optional<StreamRef>& stream = {});

    /// A block that another thread freed with `stream`, from that thread's shard, or 0. Takes the shards' locks in
    /// turn: for when `allocate` has found none and the arena would have to grow.
    Address reuse_from_other_threads(std::size_t bytes, std::size_t alignment, std::size_t requested, StreamRef stream);

    /// Whether it is time to wait for the device, so that freed memory can be used again, rather than to take `growth`
    /// more bytes. A wait costs microseconds on an idle device, and any time on a busy one, to which other threads give
    /// no work meanwhile; so it is not for small change. Where so much waits that this thread's shard gives nothing
    /// out, it is. Else, for a block from a shard, twice as much must wait in all as large shards may keep.
    [[nodiscard]] bool fence_is_worth_it(std::size_t bytes, std::size_t alignment, std::size_t growth);
    /// Whether waiting for the device would make anything reusable.
    [[nodiscard]] bool anything_waits();
    /// Waits for the whole device, leaving stream captures whole; other threads' launches may stand still meanwhile.
    /// Threads that come while one waits share the next wait. What it makes reusable is found by `allocate`.
    void fence() { fences_.pass(driver_, fences_.last_begun() + 1); }
    /// The same for what has waited longest in the heap that would serve such a block, if anything waits there; answers
    /// whether all that has waited anywhere has passed then.
    bool fence_for(std::size_t bytes, std::size_t alignment);
    [[nodiscard]] Fences& fences() noexcept { return fences_; }
    /// Everything that can be reused becomes free, and leases that are free go back to the central heap.
    void settle();

    using Forget = FunctionRef<void(std::uint64_t)>;
    /// Deallocates a block. Throws Misuse, naming `tag`, if `address` is not that of a live block; then nothing
    /// changed. Calls `forget(serial)` with the block's serial number, unless a graph keeps it: then its bytes matter
    /// still. Answers whether the block lay in shut memory and was forgotten.
    bool deallocate(Address address, const FreeOrder& order, const std::string& tag, Forget forget);

    /// Blocks that `add_live` made go, and their bytes with them; calls `forget(serial)` for each. May throw bad_alloc;
    /// then nothing changed.
    void take_out(const std::vector<Range>& blocks, Forget forget);

    /// A graph is gone: what it kept is as if deallocated now. Does so for a few blocks, calls `forget(serial)` for
    /// each, and answers how many there were; to be called until there are none. Needs no memory.
    std::size_t end_graph(std::uint64_t graph, std::size_t most, Forget forget);

    // --- for operations, one at a time ---

    /// From here on blocks that are deallocated in shut memory stay as they are. With `shut`, all that is open now is
    /// shut.
    void begin_operation(bool shut);

    /// Ends it. Just the ranges `shut` (sorted) remain shut, or, with null, what is shut now, which takes no time in
    /// proportion to anything. `passed(range)` says which deallocated blocks no work can touch any more. May throw
    /// bad_alloc; what is shut then stays shut until the next operation ends.
    void end_operation(const std::vector<Range>* shut, FunctionRef<bool(Range)> passed);

    /// The free ranges of the central heap of at least `bytes` on a side.
    std::vector<Range> free_ranges(std::size_t bytes, Side side);

    /// Takes a range out if every byte of it is (still) free.
    bool remove_if_free(Range range, Side side);

    /// Forgets what waits to be reused, for there will be no reuse, and calls `last()` while nobody can deallocate.
    void close(FunctionRef<void()> last);

    // --- questions; each heap is locked in turn ---

    /// The live block that an address points to or into.
    [[nodiscard]] std::optional<LiveBlock> block_holding(Address address);
    /// Whether every byte lies in a live block; a block that grows is a row of them.
    [[nodiscard]] bool holds(Range range);
    /// The live blocks that have bytes in `ranges`, which are sorted; also those that graphs keep, for replays may read
    /// what they find there.
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
    /// Bytes that are not worth a fence, which takes 2 to 3 us on an idle device: a five-hundredth of its memory, but
    /// at least and at most so many.
    static constexpr std::size_t least_small_change = 32_MiB;
    static constexpr std::size_t most_small_change = 128_MiB;
    /// `least_small_change` until the device has been asked, which must not be done under a lock: it may be busy.
    [[nodiscard]] std::size_t small_change() const noexcept;
    void ask_small_change() noexcept;
    /// Whether so much waits in a locked shard that it gives nothing out before the device has passed it. A fence
    /// serves all shards.
    [[nodiscard]] bool too_much_waits(const Heap& shard, Size size, std::size_t bytes) const noexcept;
    static constexpr std::size_t most_fenced_in_small_shard = 4_MiB;

    /// Who has leased each unit of a segment: the number of the shard or 0, and whether a lease starts there.
    struct Segment {
        struct Free {
            void operator()(std::atomic<std::uint8_t>* owners) const noexcept;
        };
        Range range;
        std::unique_ptr<std::atomic<std::uint8_t>[], Free> owners;
    };
    static constexpr std::uint8_t lease_start = 0x80;
    using Segments = std::vector<const Segment*>; // sorted; never changed, but replaced

    struct Locks {
        std::unique_lock<std::mutex> making;
        std::array<std::unique_lock<std::mutex>, shard_count> shards;
        std::unique_lock<std::mutex> central;
    };

    [[nodiscard]] MEMSAVER_INLINE bool at(Address border) const noexcept override;
    [[nodiscard]] const Segment* segment_of(Address address) const noexcept;
    [[nodiscard]] std::uint8_t owner(Address address) const noexcept; // with the mark of a start
    [[nodiscard]] Size size_of(std::size_t bytes, std::size_t alignment) const noexcept;
    /// The heap that has the block at `address`, if any has. To be asked again under its lock by those who must know.
    [[nodiscard]] Heap& heap_of(Address address) noexcept;
    [[nodiscard]] Heap& shard_of_this_thread(Size size);
    [[nodiscard]] Locks lock_all() noexcept;
    /// `act(heap)` for each heap that there is, the central one last.
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

    /// A block of a locked heap that was freed with `stream`, of at least `bytes` and up to a quarter more, or 0.
    Address reuse(Heap& heap, std::size_t bytes, std::size_t alignment, std::size_t requested, StreamRef stream);

    /// A lease of `bytes` for a locked shard, if the central heap has the room.
    bool lease(Heap& shard, std::size_t bytes, std::size_t alignment);
    /// Notes who has a range from now on; 0: nobody.
    void note_owner(Range range, std::uint8_t number) noexcept;
    /// A freed block of a locked heap becomes free. Answers the lease that should go back, if it is free as a whole and
    /// the shard has enough to spare.
    Range reclaim(Heap& heap, Address address) noexcept;
    /// Whether a free range of a shard is a whole lease.
    [[nodiscard]] bool whole_lease(Range range) const noexcept;
    /// A free lease of a locked shard goes back to the locked central heap.
    void give_back(Heap& shard, Range lease) noexcept;
    /// With every lock held: blocks whose work has passed become free, and free leases go back.
    void settle_locked();
    void collect_if(Heap& heap, FunctionRef<bool(Range)> gone);

    /// What `order` comes to now; throws what a failing driver call stands for.
    [[nodiscard]] FreeOrder::Kind kind_now(const FreeOrder& order) const;
    void defer(Heap& heap, const Block& block, FreeOrder::Kind kind, const FreeOrder& order);

    // What every thread reads and hardly any changes, apart from what changes often: a cache line that one core writes
    // costs all others a miss.
    static constexpr std::size_t cache_line = 64;
    AnyDriver driver_;
    std::size_t unit_;                         ///< of leases
    std::size_t chunk_;                        ///< a small shard's lease
    std::atomic<std::size_t> small_change_{0}; ///< 0: not asked for yet
    std::atomic<const Segments*> segments_{nullptr};
    std::array<std::atomic<Heap*>, shard_count> shards_{}; // made when first used
    std::atomic<std::size_t> large_shards_{0};             // of them, so many
    bool operation_ = false;                               // changed with every lock held
    alignas(cache_line) Fences fences_;
    alignas(cache_line) std::mutex making_; // held by who makes a shard or a segment; taken before all others
    std::vector<std::unique_ptr<Segment>> segment_list_;
    std::vector<std::unique_ptr<const Segments>> all_segments_; // readers may go on with an older one
    Heap central_{0, nullptr, 0};
    std::size_t lease_count_ = 0; // guarded by the central lock
    std::size_t leased_bytes_ = 0;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/heaps.ipp"
#endif
