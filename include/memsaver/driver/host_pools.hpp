// What a host machine's pools keep, as a GPU's stream-ordered pools and graphs do: pages that were taken from the
// device, in use or not. Not thread safe: its machine's lock guards it.
#pragma once

#include "memsaver/driver/handles.hpp"
#include "memsaver/driver/host_memory.hpp"

#include <cstddef>
#include <vector>

namespace memsaver::inline v0_1 {

/// A pool of a host machine is nothing but its address.
struct HostPool {};

class HostPools {
public:
    /// Pages for a pool, in use, from the machine's capacity. May throw bad_alloc; then nothing changed.
    Status add(HostMemory& memory, PoolRef pool, std::size_t bytes) {
        chunks_.reserve(chunks_.size() + 1);
        Chunk chunk{pool, bytes, true, {}};
        const Status status = memory.create(bytes, chunk.pages);
        if (status.ok()) chunks_.push_back(chunk);
        return status;
    }
    /// Everything in a pool has been freed; the pool keeps it.
    void free(PoolRef pool) noexcept {
        for (Chunk& chunk : chunks_) chunk.in_use = chunk.in_use && !(chunk.pool == pool);
    }

    [[nodiscard]] std::size_t bytes(PoolRef pool) const noexcept {
        std::size_t sum = 0;
        for (const Chunk& chunk : chunks_) sum += chunk.pool == pool ? chunk.bytes : 0;
        return sum;
    }
    void trim(HostMemory& memory, PoolRef pool, std::size_t keep) noexcept {
        std::size_t left = bytes(pool);
        std::erase_if(chunks_, [&](const Chunk& chunk) {
            if (!(chunk.pool == pool) || chunk.in_use || left <= keep) return false;
            left -= chunk.bytes;
            return memory.release(chunk.pages).ok();
        });
    }

private:
    struct Chunk {
        PoolRef pool;
        std::size_t bytes;
        bool in_use;
        PageHandle pages;
    };
    std::vector<Chunk> chunks_;
};

} // namespace memsaver::inline v0_1
