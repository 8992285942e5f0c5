// How many allocations succeed before one fails.
#pragma once

#include <utility>

namespace test {

/// The number of allocations of this thread that succeed before one fails; negative: all succeed.
inline thread_local long countdown = -1; // NOLINT: this is what a replaced operator new can read

/// For what a test itself does meanwhile: no allocation of this thread fails while one lives.
struct Unmetered {
    Unmetered() = default;
    Unmetered(const Unmetered&) = delete;
    ~Unmetered() { countdown = left_; }

private:
    long left_ = std::exchange(countdown, -1);
};
} // namespace test
