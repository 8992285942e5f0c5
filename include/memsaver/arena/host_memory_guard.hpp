// Turns the language's own exception for no host memory into the library's. Does not know what was done.
#pragma once

#include "memsaver/base/base.hpp"

#include <new>

namespace memsaver::inline v0_1 {

/// Answers what `act()` answers; for std::bad_alloc throws OutOfHostMemory. What had been done stands.
template <class Act>
decltype(auto) guard_host_memory(Act&& act) {
    try {
        return act();
    } catch (const std::bad_alloc&) {
        throw OutOfHostMemory{
            "no host memory for the library's own books; what was done stands, and the same call goes on from there"};
    }
}

} // namespace memsaver::inline v0_1
