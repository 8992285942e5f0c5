// The program's own operator new, which can fail on request. Independent of the allocating code.
#pragma once

#include "support/countdown.hpp"

#include <cstddef>
#include <doctest/doctest.h>
#include <new>

namespace no_memory {
using test::countdown;

/// Calls `act` with its 1st, 2nd, ... allocation failing until it succeeds; calls `unchanged()` after each failure.
/// Returns the number of failures.
template <class Act, class Unchanged>
int sweep(Act&& act, Unchanged&& unchanged) {
    for (int failures = 0;; ++failures) {
        REQUIRE(failures < 1000);
        bool failed = false;
        countdown = failures;
        try {
            act();
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        countdown = -1;
        if (!failed) return failures;
        unchanged();
    }
}
} // namespace no_memory
