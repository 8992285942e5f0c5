// An arena as the layers above see it: neither driver nor policy is named.
#pragma once

#include "memsaver/arena/growing_block.hpp"
#include "memsaver/arena/order.hpp"
#include "memsaver/backup/backup.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_1 {

/// A row of `usage()`: one tag on one device. Bytes.
struct ArenaUsage {
    std::string tag;
    int device = 0;
    std::string policy;
    std::string state; ///< "active", "paused", "partly paused", "empty", "plain" (switched off) or "closed"
    std::size_t reserved_bytes = 0;  ///< addresses
    std::size_t mapped_bytes = 0;    ///< physical memory owned: the sum of the handles that live, held ones included
    std::size_t held_bytes = 0;      ///< of these, what the driver refused to take back so far
    std::size_t used_bytes = 0;      ///< live blocks, as requested, paused or not
    std::size_t paused_bytes = 0;    ///< addresses whose memory is away
    std::size_t backed_up_bytes = 0; ///< held by the policy, on the host or in files
    std::size_t blocks = 0;          ///< live blocks
};

/// Where blocks come from. Every method may be called from any thread.
class ArenaBase {
public:
    static constexpr std::size_t default_alignment = 256;

    ArenaBase() = default;
    ArenaBase(const ArenaBase&) = delete;
    ArenaBase& operator=(const ArenaBase&) = delete;
    virtual ~ArenaBase() = default;

    /// `bytes` of device memory at a multiple of `alignment`, undefined content. Throws Misuse (size 0 or too large for
    /// the arena, alignment not a power of two, closed), OutOfMemory, or what a failing driver call stands for.
    virtual void* allocate(std::size_t bytes, std::size_t alignment) = 0;

    /// Gives a block up, paused or not. Throws Misuse unless `pointer` is what `allocate` answered and has not been
    /// given up since. Null is allowed and does nothing.
    virtual void deallocate(void* pointer, FreeOrder order) = 0;

    /// The kept bytes of `bytes` at `pointer`, which may point into a block: while it is paused, and later for as long
    /// as the policy keeps them. Throws Misuse that says why there are none.
    [[nodiscard]] virtual BackupView backup_view(const void* pointer, std::size_t bytes) = 0;

    /// Whether an address lies in this arena.
    [[nodiscard]] virtual bool contains(const void* pointer) const noexcept = 0;

    /// Whether `bytes` at `pointer`, which may point into a block, lie in live blocks.
    [[nodiscard]] virtual bool holds(const void* pointer, std::size_t bytes) = 0;

    /// Addresses for `cap` bytes, rounded up to whole pages, without memory so far. Throws Misuse (0, more than the
    /// arena's capacity has room for, closed), or what a failing driver call stands for.
    [[nodiscard]] virtual std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) = 0;

    /// Fills `bytes` at `pointer` with zeros in the order of `stream`; recorded, if that is being captured. Throws
    /// Misuse if they are not this arena's, paused or being paused; or what a failing driver call stands for.
    virtual void zero(void* pointer, std::size_t bytes, StreamRef stream) = 0;

    /// Whether a stream is of the arena's device. The default stream is; a driver that cannot tell says yes.
    [[nodiscard]] virtual bool owns_stream(StreamRef stream) const = 0;

    /// `deallocate` for owners that may outlive `close()` and must not throw: failures go to the event sink.
    virtual void deallocate_quietly(void* pointer, FreeOrder order) noexcept = 0;

    /// A graph is gone: the blocks that were given up while it was captured are as if given up now.
    virtual void let_go(std::uint64_t graph) noexcept = 0;

    /// Throws Misuse, beginning with `what`, after `close`.
    virtual void require_open(const char* what) const = 0;

    /// Throws Misuse, beginning with `what`, if any of the memory is paused or being paused, or the arena closed.
    virtual void require_resumed(const char* what) = 0;

    [[nodiscard]] virtual ArenaUsage usage() = 0;
    [[nodiscard]] virtual const std::string& tag() const noexcept = 0;
    [[nodiscard]] virtual int device() const noexcept = 0;
};

} // namespace memsaver::inline v0_1
