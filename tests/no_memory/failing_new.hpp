// The program's own operator new, which can be told to fail. Knows nothing of who allocates.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace no_memory {

/// How many more allocations of this thread succeed before one fails; negative: all do.
inline thread_local long countdown = -1; // NOLINT: this is what a replaced operator new can read

/// Calls `act` failing its 1st, 2nd, ... allocation until it succeeds; `unchanged()` is asked after each failure.
/// Answers how often it failed.
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
