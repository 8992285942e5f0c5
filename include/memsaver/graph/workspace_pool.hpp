// Workspaces that graphs and kernels share by name.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/arena_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string_view>

namespace memsaver::inline v0_3 {

/// The contents of a workspace when `get` returns it.
enum class Reuse : unsigned char {
    as_is,  ///< left as they are; undefined before the first use, and after a pause that discards them
    zeroed, ///< zeroed by a fill on the stream, which is recorded if the stream is being captured
};

/// Options of `WorkspacePool::get`.
struct WorkspaceOptions {
    /// Maximum size of the name in bytes; reserves addresses, not memory. 0: the name's current cap, or the pool's for
    /// a new name.
    std::size_t cap = 0;
    Reuse reuse = Reuse::as_is;
    /// The stream on which the workspace will be used; must be a stream of the pool's device.
    StreamRef stream{};
    /// Names of one group are never in use at the same time and share bytes. Empty: the name's own group, or for a new
    /// name the pool's unnamed group.
    std::string_view group{};
};

/// Options of a WorkspacePool, for all its names.
struct WorkspacePoolOptions {
    /// Default maximum size of a name in bytes. Each place that names share reserves this many bytes of addresses.
    /// `get` throws Misuse if that exceeds the arena's capacity.
    std::size_t cap = 1_GiB;
};

/// Statistics of one WorkspacePool.
struct WorkspaceStats {
    std::size_t names = 0;
    std::size_t places = 0;       ///< address ranges shared by names, lent ones included
    std::size_t asked_bytes = 0;  ///< sum over all names of the largest size requested
    std::size_t mapped_bytes = 0; ///< memory allocated by the pool for names, paused or not
    std::size_t lent_bytes = 0;   ///< lent memory that names may use
    std::uint64_t gets = 0;       ///< successful calls of `get`
    std::uint64_t reuses = 0;     ///< of these, calls that allocated no memory
    std::uint64_t growths = 0;    ///< and calls that allocated memory

    /// Bytes saved by sharing, compared with a separate workspace for each name. Never negative.
    [[nodiscard]] std::size_t saved_bytes() const noexcept {
        return asked_bytes - (asked_bytes < mapped_bytes ? asked_bytes : mapped_bytes);
    }

    /// "3 workspaces in 1 place: 96.00 MiB requested, 48.00 MiB allocated, 0 B lent, reuse saved 48.00 MiB"
    friend std::ostream& operator<<(std::ostream& out, const WorkspaceStats& stats);
};

/// Hands out workspaces from an arena's memory, which are paused and resumed with it. Names of one group share bytes:
/// the program must ensure that no two of them are in use at the same time. Groups do not share bytes. The address of a
/// name never changes during the pool's lifetime, whether paused or grown, so captured graphs may keep it. Move-only; a
/// moved-from pool must not be used. Thread-safe. The destructor gives the memory back to the device once the work
/// submitted so far has completed; inside a capture's body, when that graph is destroyed.
///
/// A pool belongs to its arena's device. On a disabled saver or with plain memory it works the same and is never
/// paused.
class WorkspacePool {
public:
    /// Allocates no memory yet. Throws Misuse for an empty Arena, and for a cap of 0.
    explicit WorkspacePool(Arena arena, WorkspacePoolOptions options = {});
    WorkspacePool(WorkspacePool&&) noexcept = default;
    WorkspacePool& operator=(WorkspacePool&&) noexcept = default;
    ~WorkspacePool() = default;

    /// Returns the address of the workspace `name`, usable for at least `bytes` from now on and aligned to at least 256
    /// bytes.
    ///
    /// A new name is assigned the first place of its group that is large enough; otherwise the first that can grow in
    /// place up to the name's cap, which is then grown; otherwise a new place. Growing allocates only the whole pages
    /// that it needs. May be called while streams are being captured. Does not wait for the
    /// device, only for an operation on the tag that is in progress.
    ///
    /// Throws Misuse: `bytes` is 0 or exceeds the name's cap; the cap or group differs from the name's; the stream
    /// belongs to another device; growing or zeroing memory that is paused or being paused; the name lies in lent
    /// memory whose tag has been dropped; closed; in a forked child. Throws OutOfMemory, OutOfHostMemory, or the
    /// exception for a failed driver call. On failure nothing changes, except that newly allocated memory may stay if
    /// zeroing it failed.
    [[nodiscard]] void* get(std::string_view name, std::size_t bytes, const WorkspaceOptions& options = {});

    /// Lends memory to the pool: names of `group` may from now on also use `bytes` at `memory`, a block of `from` such
    /// as a captured graph's. The owner guarantees that the memory is not in use while these names are. Only names
    /// whose cap is at most `bytes` can be placed there, because lent memory does not grow. The pool keeps `memory`
    /// alive for its own lifetime. Once the tag of `memory` has been dropped, no further name is placed there. Throws
    /// Misuse if the range is not entirely in a live block of `from`, is not aligned to 256 bytes, or is on another
    /// device than the pool.
    void lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes, std::string_view group = {});

    /// Returns the pool's statistics.
    [[nodiscard]] WorkspaceStats stats() const;
    /// The arena that the pool allocates from.
    [[nodiscard]] const Arena& arena() const;

private:
    [[nodiscard]] detail::WorkspacePoolState& state() const;

    std::shared_ptr<detail::WorkspacePoolState> state_; // never shared
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/graph/workspace_pool.ipp"
#endif
