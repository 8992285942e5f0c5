// Compiled with optimization in every build: unoptimized and sanitized tests would spend a tenth of their time here.
#include "support/bytes.hpp"

namespace test {

std::vector<unsigned char> pattern(std::size_t count, std::uint64_t seed) {
    struct Pair {
        std::uint64_t first, second;
    };
    const std::size_t pairs = (count + sizeof(Pair) - 1) / sizeof(Pair);
    std::vector<unsigned char> bytes(pairs * sizeof(Pair));
    auto* const to = reinterpret_cast<Pair*>(bytes.data());
    const std::uint64_t begin = (seed + 1) * 0x9E3779B97F4A7C15U;
    for (std::size_t i = 0; i < pairs; ++i) {
        std::uint64_t word = begin + i * sizeof(Pair);
        word = (word ^ (word >> 30U)) * 0xBF58476D1CE4E5B9U;
        word ^= word >> 27U;
        to[i] = {word, word};
    }
    bytes.resize(count);
    return bytes;
}
} // namespace test
