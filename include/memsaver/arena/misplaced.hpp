// Says what is wrong with a pointer that cannot be deallocated.
#pragma once

#include "memsaver/arena/block_allocator.hpp"
#include "memsaver/base/base.hpp"

#include <string>

namespace memsaver::inline v0_1 {

/// Throws Misuse that tells a block freed before from a pointer into a live block and from one that was never handed
/// out. `block`: what was found at the address, if anything; `internal(start)`: blocks that are not the program's.
template <class Internal>
[[noreturn]] void raise_misplaced(const BlockAllocator& blocks, Address address, const Block* block,
                                  const std::string& tag, Internal&& internal) {
    const std::string where = "deallocate(" + format_address(address) + ") in tag \"" + tag + "\": ";
    if (block != nullptr) {
        throw Misuse{where + "this block of " + format_bytes(block->requested) + " was freed before"};
    }
    std::string text = "no block of this tag starts here; it may have been freed before";
    blocks.for_each_live([&](const Block& live) {
        if (internal(live.address) || address <= live.address || address - live.address >= live.bytes) return;
        text = "the pointer lies inside a block of " + format_bytes(live.requested) + " that starts at " +
               format_address(live.address);
    });
    throw Misuse{where + text};
}

} // namespace memsaver::inline v0_1
