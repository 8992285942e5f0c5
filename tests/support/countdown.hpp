// How many allocations succeed before one fails.
#pragma once

namespace test {

/// The number of allocations of this thread that succeed before one fails; negative: all succeed.
inline thread_local long countdown = -1; // NOLINT: this is what a replaced operator new can read
} // namespace test
