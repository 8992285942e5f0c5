// What a saver asks of its plain memory. Programs that have none compile nothing of it.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/fwd.hpp"

#include <cstddef>
#include <memory>

namespace memsaver::inline v0_3::detail {

/// Blocks that are one driver allocation each, as users of IPC and registrations need, and that are never paused: those
/// of a saver that is switched off, and those allocated outside of every tag. Their arenas have no other blocks, but
/// may have elastic ranges and workspaces, whose pages are the arena's own. Thread-safe.
///
/// Functions that are members, instead of virtual ones: with one implementation in sight, compilers call that of a
/// virtual one directly, and so compile it into programs that have no plain memory.
struct PlainMemory {
    void (*destroy)(PlainMemory*) noexcept;
    /// Allocates as the arena does. Does not make room.
    void* (*allocate)(PlainMemory&, ArenaCore& arena, const Request& request);
    /// Returns whether `bytes` at `pointer` lie in a live block of the arena.
    bool (*holds)(PlainMemory&, const ArenaCore& arena, const void* pointer, std::size_t bytes) noexcept;
    /// Frees a block. Waits for the device, as cudaFree does. Throws Misuse unless one starts here.
    void (*deallocate)(PlainMemory&, ArenaCore& arena, void* pointer, const FreeOrder& order,
                       const std::shared_ptr<GraphKeeps>& graph);
    /// Writes to memory that is never paused, after all work submitted to the device before this call, and waits for
    /// the copy.
    void (*write)(PlainMemory&, ArenaCore& arena, void* pointer, const void* from, std::size_t bytes);
    /// Loads once into memory that is never paused. `reader` makes the policy that reads.
    void (*load)(PlainMemory&, ArenaCore& arena, void* pointer, const FileRange& from, AnyPolicy (*reader)());
    /// Adds the arena's blocks to its row.
    void (*fill)(PlainMemory&, const ArenaCore& arena, ArenaUsage& row) noexcept;
    /// Frees all blocks of a closed arena. Returns the first failure; the next call retries the rest.
    Status (*close)(PlainMemory&, const ArenaCore& arena) noexcept;
};

/// The caller destroys the result. `directory` has the blocks, and must outlive it.
using MakePlainMemory = PlainMemory* (*)(Directory& directory);
[[nodiscard]] PlainMemory* make_plain_memory(Directory& directory);

} // namespace memsaver::inline v0_3::detail
