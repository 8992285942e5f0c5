// The heaps of an arena and which of them an address belongs to. Does not allocate from them.
#pragma once

#include "memsaver/arena/heap.hpp"
#include "memsaver/backup/backup.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <pthread.h>

namespace memsaver::inline v0_1 {

/// A central heap, and shards that lease chunks from it. Locks are taken in the order shards, central.
template <Streams D>
class HeapSet {
public:
    static constexpr std::size_t shard_count = 32;

    HeapSet(Range space, std::size_t chunk_bytes)
        : central{0, 0}, space_{space}, chunk_bytes_{chunk_bytes},
          owners_(std::make_unique<std::atomic<std::uint8_t>[]>(space.bytes / chunk_bytes + 1)) {
        for (std::size_t i = 0; i < shard_count; ++i) {
            shards[i] = std::make_unique<Heap<D>>(chunk_bytes, (std::uint64_t{i} + 1) << 56U);
        }
    }

    /// The heap that has the block at `address`, if any has. To be asked again under its lock by those who must know.
    [[nodiscard]] Heap<D>& heap_of(Address address) noexcept {
        const std::uint8_t shard = owner(address).load();
        return shard == 0 ? central : *shards[shard - 1U];
    }
    /// The shard that this thread's id hashes to: with many more shards than threads, mostly its own.
    [[nodiscard]] Heap<D>& shard_of_this_thread() noexcept {
        std::uint64_t id = static_cast<std::uint64_t>(pthread_self()) >> 8U;
        id *= 0xFF51AFD7ED558CCDULL; // ids differ in few, regular bits: mixed as MurmurHash3 does
        id ^= id >> 33U;
        id *= 0xC4CEB9FE1A85EC53ULL;
        static_assert(shard_count == 32);
        return *shards[static_cast<std::size_t>(id >> 59U)];
    }
    [[nodiscard]] std::array<std::unique_lock<std::mutex>, shard_count + 1> lock_all() {
        std::array<std::unique_lock<std::mutex>, shard_count + 1> locks;
        for (std::size_t i = 0; i < shard_count; ++i) locks[i] = std::unique_lock{shards[i]->mutex};
        locks[shard_count] = std::unique_lock{central.mutex};
        return locks;
    }

    // With the central lock held: blocks of the central heap that are a shard's chunks.
    void lease(Address chunk, const Heap<D>& shard) noexcept {
        for (std::size_t i = 0; i < shard_count; ++i) {
            if (shards[i].get() == &shard) owner(chunk).store(static_cast<std::uint8_t>(i + 1));
        }
        leases += 1;
    }
    void end_lease(Address chunk) noexcept {
        owner(chunk).store(0);
        leases -= 1;
    }
    [[nodiscard]] bool leased(const Heap<D>& heap, Address address) const noexcept {
        return &heap == &central && owner(address).load() != 0;
    }

    // --- questions; each heap is locked in turn ---

    /// The live block that an address points to or into.
    std::optional<LiveBlock> block_holding(Address address) {
        Heap<D>& heap = heap_of(address);
        const std::lock_guard lock{heap.mutex};
        std::optional<LiveBlock> found;
        const auto take = [&](const Block& block) {
            if (leased(heap, block.address)) return;
            if (block.address <= address && address - block.address < block.bytes) {
                found = LiveBlock{block.address, block.bytes, block.serial};
            }
        };
        const Block* exact = heap.blocks.find(address);
        if (exact != nullptr && exact->state == Block::State::live) take(*exact);
        if (!found) heap.blocks.for_each_live(take);
        return found;
    }

    /// Whether every byte lies in a live block; a block that grows is a row of them.
    bool holds(Range range) {
        for (Address at = range.address; at < range.end();) {
            const std::optional<LiveBlock> block = block_holding(at);
            if (!block) return false;
            at = block->address + block->bytes;
        }
        return true;
    }

    /// The live blocks that have bytes in `ranges`, which are sorted; also those that graphs keep, for replays may read
    /// what they find there.
    std::vector<LiveBlock> live_blocks(const std::vector<Range>& ranges) {
        std::vector<LiveBlock> live;
        const auto collect = [&](Heap<D>& heap) {
            const std::lock_guard lock{heap.mutex};
            const auto take = [&](const Block& block) {
                if (leased(heap, block.address)) return;
                const auto next = std::upper_bound(ranges.begin(), ranges.end(), block.address,
                                                   [](Address a, const Range& range) { return a < range.end(); });
                if (next == ranges.end() || next->address >= block.address + block.bytes) return;
                live.push_back({block.address, block.bytes, block.serial});
            };
            heap.blocks.for_each_live(take);
            heap.deferred.for_each_kept([&](Address address) { take(*heap.blocks.find(address)); });
        };
        for (const auto& shard : shards) collect(*shard);
        collect(central);
        return live;
    }

    /// What the next fence would make reusable, in bytes.
    struct Fenced {
        std::size_t bytes = 0;
        std::size_t in_this_shard = 0; ///< of the thread that asks
    };
    Fenced fenced() {
        Fenced fenced;
        const Heap<D>* const own = &shard_of_this_thread();
        for (const auto& shard : shards) {
            const std::lock_guard lock{shard->mutex};
            fenced.bytes += shard->deferred.fenced_bytes();
            if (shard.get() == own) fenced.in_this_shard = shard->deferred.fenced_bytes();
        }
        const std::lock_guard lock{central.mutex};
        fenced.bytes += central.deferred.fenced_bytes();
        return fenced;
    }

    struct Sums {
        std::size_t live_bytes = 0; ///< as requested
        std::size_t live_blocks = 0;
    };
    Sums sums() {
        Sums sums;
        for (const auto& shard : shards) {
            const std::lock_guard lock{shard->mutex};
            sums.live_bytes += shard->blocks.live_bytes();
            sums.live_blocks += shard->blocks.live_blocks();
        }
        const std::lock_guard lock{central.mutex};
        sums.live_bytes += central.blocks.live_bytes() - leases * chunk_bytes_;
        sums.live_blocks += central.blocks.live_blocks() - leases;
        return sums;
    }

    Heap<D> central;
    std::array<std::unique_ptr<Heap<D>>, shard_count> shards;
    std::size_t leases = 0; // guarded by the central lock

private:
    [[nodiscard]] std::atomic<std::uint8_t>& owner(Address address) const noexcept {
        return owners_[(address - space_.address) / chunk_bytes_];
    }

    Range space_;
    std::size_t chunk_bytes_;
    std::unique_ptr<std::atomic<std::uint8_t>[]> owners_; // for each chunk: 0 central, else the shard that leased it
};

} // namespace memsaver::inline v0_1
