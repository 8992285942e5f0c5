// The option to let stray reads of paused memory pass.
#pragma once

#include "memsaver/base/sizes.hpp"

#include <cstddef>

namespace memsaver::inline v0_1 {

/// Puts shared pages, which the device can only read, behind paused addresses. A kernel that reads paused memory then
/// reads rubbish instead of ending the context; one that writes ends it all the same.
///
/// It HIDES BUGS: a program that reads what is away computes with rubbish, and nobody is told. It is an aid for finding
/// out what still runs when memory goes, not a state to serve from. It costs at most twice `block_bytes` of device
/// memory on each device while anything is paused, and at each pause and resume a driver call for every `block_bytes`
/// paused (docs/reliability.md has the figures).
struct Quarantine {
    /// Of the largest of the shared blocks: larger costs memory, smaller costs time.
    std::size_t block_bytes = 64_MiB;
};

} // namespace memsaver::inline v0_1
