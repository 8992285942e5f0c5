// One block of an arena's addresses, as the books know it.
#pragma once

#include "memsaver/driver/handles.hpp"

#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_1 {

/// What is known of a block that has been handed out.
struct Block {
    enum class State : unsigned char { free, live, freed }; ///< `freed`: given up, but not yet to be reused

    Address address = 0;
    std::size_t bytes = 0;     ///< a multiple of 256
    std::size_t requested = 0; ///< what was asked for; 0 if not handed out
    std::uint64_t serial = 0;
    State state = State::free;
};

} // namespace memsaver::inline v0_1
