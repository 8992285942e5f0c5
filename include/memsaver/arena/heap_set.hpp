// The heaps of an arena and which of them an address belongs to. Does not allocate from them.
#pragma once

#include "memsaver/arena/heap.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

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
