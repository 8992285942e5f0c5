// Random numbers from a seed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace test {

/// Small, fast, and the same on every platform.
struct Random {
    explicit Random(std::uint64_t seed) : state_{seed * 0x9E3779B97F4A7C15U + 0x1234567U} {}
    std::uint64_t next() {
        state_ ^= state_ << 13U;
        state_ ^= state_ >> 7U;
        state_ ^= state_ << 17U;
        return state_;
    }
    /// Returns a number from 0 to `end` - 1.
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }

private:
    std::uint64_t state_;
};
} // namespace test
