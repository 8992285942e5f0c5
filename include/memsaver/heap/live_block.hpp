// A live block, as policies see it.
#pragma once

#include "memsaver/core/handles.hpp"

#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_2 {

/// A block that the program holds. The serial number is never used for another block of the arena, its address may be.
struct LiveBlock {
    Address address = 0;
    std::size_t bytes = 0; ///< a multiple of 256: all that the block has, at least what was asked for
    std::uint64_t serial = 0;
    std::size_t asked = 0; ///< what was asked for, the program's bytes; 0 where nobody knows
    friend constexpr bool operator==(const LiveBlock&, const LiveBlock&) = default;
};

} // namespace memsaver::inline v0_2
