// Plain memory: a table of blocks.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/driver/attic.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/plain_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// See PlainMemory for the methods.
class PlainBlocks final : public PlainMemory {
public:
    explicit PlainBlocks(Directory& directory);
    PlainBlocks(const PlainBlocks&) = delete;
    PlainBlocks& operator=(const PlainBlocks&) = delete;
    ~PlainBlocks();

    void* allocate(const std::shared_ptr<ArenaCore>& arena, const Request& request);
    [[nodiscard]] bool contains(const ArenaCore& arena, const void* pointer) noexcept;
    [[nodiscard]] bool holds(const ArenaCore& arena, const void* pointer, std::size_t bytes) noexcept;
    void deallocate(ArenaCore& arena, void* pointer, const FreeOrder& order, const std::shared_ptr<GraphKeeps>& graph);
    void write(ArenaCore& arena, void* pointer, const void* from, std::size_t bytes);
    void load(ArenaCore& arena, void* pointer, const FileRange& from, AnyPolicy (*reader)());
    void fill(const ArenaCore& arena, ArenaUsage& row) noexcept;
    Status close(const ArenaCore& arena) noexcept;

private:
    enum class State : unsigned char {
        live,
        freed,   ///< freed, but replays may touch it, or it could not be freed
        leaving, ///< being freed
    };
    struct Block {
        std::shared_ptr<ArenaCore> arena;
        std::size_t bytes = 0;
        State state = State::live;
    };
    /// A block that was freed in a capture: ends with the graph.
    struct Kept {
        Kept(PlainBlocks& of, std::shared_ptr<ArenaCore> in) noexcept : all{of}, arena{std::move(in)} {}
        Kept(const Kept&) = delete;
        Kept& operator=(const Kept&) = delete;
        ~Kept() {
            if (block != 0) all.let_go(*arena, block);
        }

        PlainBlocks& all;
        std::shared_ptr<ArenaCore> arena;
        Address block = 0; // guarded by the lock
    };
    using Blocks = std::map<Address, Block>;

    /// Returns the block that contains an address, or the end.
    [[nodiscard]] Blocks::iterator over(const ArenaCore& arena, const void* pointer) noexcept;
    /// Frees the memory of a block that is leaving. If that fails, the block is `after` again.
    Status give(Address address, State after) noexcept;
    void let_go(const ArenaCore& arena, Address address) noexcept;
    /// Frees the resources of a load, and those that earlier loads could not free.
    void end_load(const ArenaCore& arena, std::shared_ptr<AnySlot> slot) noexcept;
    static void ignore(const ArenaCore& arena, const Status& status) noexcept;

    Directory& directory_;
    std::mutex mutex_;
    Blocks blocks_;
    Attic spent_; // slots of loads
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/plain_blocks.ipp"
#endif
