// What a pool of workspaces, and a workspace, can be asked for. Values only.
#pragma once

#include "memsaver/saver/saver.hpp"

#include <cstddef>
#include <string_view>

namespace memsaver::inline v0_1 {

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

struct WorkspacePoolOptions {
    /// Bytes that a name may grow to, unless it says so itself. Every place that names share takes so many addresses of
    /// the arena's capacity, which is twice the device's memory by default.
    std::size_t cap = 1_GiB;
};

} // namespace memsaver::inline v0_1
