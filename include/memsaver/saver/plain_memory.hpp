// What a saver asks of its plain memory. Programs that have none compile nothing of it.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/usage.hpp"

#include <cstddef>
#include <memory>

namespace memsaver::inline v0_3::detail {

class ArenaCore;
class Directory;
class GraphKeeps;

/// Blocks that are one driver allocation each, as users of IPC and registrations need, and that are never paused: those
/// of a saver that is switched off, and those allocated outside of every tag. Their arenas have no other blocks, but
/// may have elastic ranges and workspaces, whose pages are the arena's own. Thread-safe.
///
/// A table of functions instead of virtual ones: with one implementation in sight, compilers call that of a virtual one
/// directly, and so compile it into programs that have no plain memory.
class PlainMemory {
public:
    struct Functions {
        void (*destroy)(PlainMemory*) noexcept;
        void* (*allocate)(PlainMemory&, const std::shared_ptr<ArenaCore>&, const Request&);
        bool (*holds)(PlainMemory&, const ArenaCore&, const void*, std::size_t) noexcept;
        void (*deallocate)(PlainMemory&, ArenaCore&, void*, const FreeOrder&, const std::shared_ptr<GraphKeeps>&);
        void (*write)(PlainMemory&, ArenaCore&, void*, const void*, std::size_t);
        void (*load)(PlainMemory&, ArenaCore&, void*, const FileRange&, AnyPolicy (*)());
        void (*fill)(PlainMemory&, const ArenaCore&, ArenaUsage&) noexcept;
        Status (*close)(PlainMemory&, const ArenaCore&) noexcept;
    };
    struct Delete {
        void operator()(PlainMemory* plain) const noexcept { plain->functions_.destroy(plain); }
    };

    PlainMemory(const PlainMemory&) = delete;
    PlainMemory& operator=(const PlainMemory&) = delete;

    /// Allocates as the arena does. Does not make room.
    void* allocate(const std::shared_ptr<ArenaCore>& arena, const Request& request) {
        return functions_.allocate(*this, arena, request);
    }
    /// Returns whether `bytes` at `pointer` lie in a live block of the arena.
    [[nodiscard]] bool holds(const ArenaCore& arena, const void* pointer, std::size_t bytes) noexcept {
        return functions_.holds(*this, arena, pointer, bytes);
    }
    /// Frees a block. Waits for the device, as cudaFree does. Throws Misuse unless one starts here.
    void deallocate(ArenaCore& arena, void* pointer, const FreeOrder& order, const std::shared_ptr<GraphKeeps>& graph) {
        functions_.deallocate(*this, arena, pointer, order, graph);
    }
    /// Writes to memory that is never paused, after all work submitted to the device before this call, and waits for
    /// the copy.
    void write(ArenaCore& arena, void* pointer, const void* from, std::size_t bytes) {
        functions_.write(*this, arena, pointer, from, bytes);
    }
    /// Loads once into memory that is never paused. `reader` makes the policy that reads.
    void load(ArenaCore& arena, void* pointer, const FileRange& from, AnyPolicy (*reader)()) {
        functions_.load(*this, arena, pointer, from, reader);
    }
    /// Adds the arena's blocks to its row.
    void fill(const ArenaCore& arena, ArenaUsage& row) noexcept { functions_.fill(*this, arena, row); }
    /// Frees all blocks of a closed arena. Returns the first failure; the next call retries the rest.
    Status close(const ArenaCore& arena) noexcept { return functions_.close(*this, arena); }

protected:
    explicit PlainMemory(const Functions& functions) noexcept : functions_{functions} {}
    ~PlainMemory() = default;

private:
    const Functions& functions_;
};
using PlainMemoryPtr = std::unique_ptr<PlainMemory, PlainMemory::Delete>;

/// `directory` is told of every live block, and must outlive the result.
using MakePlainMemory = PlainMemoryPtr (*)(Directory& directory);
[[nodiscard]] PlainMemoryPtr make_plain_memory(Directory& directory);

} // namespace memsaver::inline v0_3::detail
