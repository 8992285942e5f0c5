// A live block, as policies see it.
#pragma once

#include "memsaver/core/handles.hpp"

#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_3 {

/// A block that the program holds. The arena never reuses the serial number, but it may reuse the address.
struct LiveBlock {
    Address address = 0;
    std::size_t bytes = 0; ///< size requested, rounded up to a multiple of 256; the whole block if the request is
                           ///< unknown
    std::uint64_t serial = 0;
    std::size_t asked = 0; ///< size requested by the program; 0 if unknown
    friend constexpr bool operator==(const LiveBlock&, const LiveBlock&) = default;
};

} // namespace memsaver::inline v0_3
