// Workspaces that graphs and kernels share by name.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/saver/arena_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string_view>

namespace memsaver::inline v0_2 {

/// What the bytes of a workspace are when it is handed out.
enum class Reuse : unsigned char {
    as_is,  ///< whatever its last user left; undefined where nobody was before, and after a pause that discards
    zeroed, ///< zero: a fill in the order of the stream, recorded if that is being captured
};

/// One call of `WorkspacePool::get`.
struct WorkspaceOptions {
    /// Bytes that the name may ever grow to: addresses, not memory. 0: what the name has, or the pool's for a new one.
    std::size_t cap = 0;
    Reuse reuse = Reuse::as_is;
    /// Where the workspace will be used; must be a stream of the pool's device.
    StreamRef stream{};
    /// Names of one group exclude one another and share bytes. Empty: the name's own, or the pool's for a new one.
    std::string_view group{};
};

/// What holds for all names of a WorkspacePool.
struct WorkspacePoolOptions {
    /// Bytes that a name may grow to, unless it says so itself. Every place that names share takes so many addresses.
    /// `get` throws Misuse where that is more than the arena's capacity.
    std::size_t cap = 1_GiB;
};

/// Counts and bytes of one WorkspacePool.
struct WorkspaceStats {
    std::size_t names = 0;
    std::size_t places = 0;       ///< address ranges that names share, lent ones included
    std::size_t asked_bytes = 0;  ///< the sum over the names of the most that each has asked for
    std::size_t mapped_bytes = 0; ///< memory that the pool took for them, paused or not
    std::size_t lent_bytes = 0;   ///< memory of others that names may use
    std::uint64_t gets = 0;       ///< calls that were answered
    std::uint64_t reuses = 0;     ///< of these, those that took no memory
    std::uint64_t growths = 0;    ///< and those that did

    /// What the names would take by themselves and did not, in whole workspaces: never negative.
    [[nodiscard]] std::size_t saved_bytes() const noexcept {
        return asked_bytes - (asked_bytes < mapped_bytes ? asked_bytes : mapped_bytes);
    }

    /// "3 workspaces in 1 place: 96.00 MiB asked for, 48.00 MiB taken, 0 B lent, reuse saved 48.00 MiB"
    friend std::ostream& operator<<(std::ostream& out, const WorkspaceStats& stats);
};

/// Hands out workspaces of an arena's memory, which are paused and resumed with it. Names of one group exclude one
/// another: the program sees to it that no two of them are in use at the same time. So they share bytes; groups do not.
/// A name's address is the same for as long as the pool lives, paused or not, however much it grows: what was captured
/// with it stays good. Move-only, and of no use once moved from; every method may be called from any thread. Its memory
/// goes back to the arena when it dies, as `deallocate` gives it: inside a capture's body, when that graph ends.
///
/// A pool belongs to its arena's device. Switched off, or made on plain memory, it works the same and is never paused.
class WorkspacePool {
public:
    /// Takes nothing yet. Throws Misuse for an arena that stands for none, and for a cap of 0.
    explicit WorkspacePool(Arena arena, WorkspacePoolOptions options = {});
    WorkspacePool(WorkspacePool&&) noexcept;
    WorkspacePool& operator=(WorkspacePool&&) noexcept;
    ~WorkspacePool();

    /// The address of the workspace `name`, good for at least `bytes` from now on, at a multiple of 256 bytes at least.
    ///
    /// A new name goes to the first place of its group that is large enough; else to the first that can grow in place
    /// up to the name's cap, and grows it; else to a place of its own. Growing takes whole pages and no more. May be
    /// called while streams are captured. Waits for nothing.
    ///
    /// Throws Misuse: `bytes` 0 or beyond the name's cap; another cap or group than the name has; a stream of another
    /// device; growing or zeroing what is paused or being paused; a name in lent memory whose tag has been dropped;
    /// closed; in a forked child. OutOfMemory or OutOfHostMemory where there is no room, and what a failing driver call
    /// stands for. Then nothing has changed, but that memory taken for a workspace may stay when zeroing it failed.
    [[nodiscard]] void* get(std::string_view name, std::size_t bytes, const WorkspaceOptions& options = {});

    /// Names of `group` may from now on also use `bytes` at `memory`, a block of `from` such as a captured graph's: by
    /// lending, its owner says that it is not in use while these names are. Names whose cap is at most `bytes` can be
    /// put there, for lent memory does not grow. The pool keeps `memory` alive for as long as it lives itself; once its
    /// tag has been dropped no further name is put there.
    /// Throws Misuse for what is not, as a whole, in a live block of `from`, begins at no multiple of 256 bytes, or is
    /// on another device than the pool's.
    void lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes, std::string_view group = {});

    /// What it holds, and what sharing saved.
    [[nodiscard]] WorkspaceStats stats() const;
    /// The arena that its own memory comes from.
    [[nodiscard]] const Arena& arena() const;

private:
    struct State;
    [[nodiscard]] State& state() const;

    std::unique_ptr<State> state_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/graph/workspace_pool.ipp"
#endif
