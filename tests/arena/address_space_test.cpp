// Addresses are reserved from the lowest gap and freed in arbitrary pieces.
#include "memsaver/arena/pages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace arena_address_space_test {

using namespace memsaver;

using namespace memsaver::detail;

constexpr Address base = 0x1000;
constexpr std::size_t size = 64;

/// Returns the lowest gap of a map of every byte, or 0.
Address lowest_gap(const std::vector<bool>& taken, std::size_t bytes, std::size_t alignment) {
    for (Address at = base; at + bytes <= base + size; ++at) {
        if (at % alignment != 0) continue;
        const auto first = taken.begin() + static_cast<int>(at - base);
        if (std::none_of(first, first + static_cast<int>(bytes), [](bool yes) { return yes; })) return at;
    }
    return 0;
}

TEST_CASE("AddressSpace: random takes and gives against a map of every byte") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        AddressSpace space{{base, size}};
        std::vector<bool> taken(size);
        for (int step = 0; step < 500; ++step) {
            if (random() % 2 == 0) {
                const std::size_t bytes = 1 + random() % 16;
                const std::size_t alignment = std::size_t{1} << (random() % 5);
                const Address expected = lowest_gap(taken, bytes, alignment);
                REQUIRE(space.take(bytes, alignment) == expected);
                if (expected != 0) std::fill_n(taken.begin() + static_cast<int>(expected - base), bytes, true);
                continue;
            }
            // A part of the reserved bytes: it may begin and end within reservations and span several adjacent ones.
            const std::size_t first = random() % size;
            std::size_t end = first;
            while (end < size && taken[end]) ++end;
            if (end == first) continue;
            const std::size_t bytes = 1 + random() % (end - first);
            space.give({base + first, bytes});
            std::fill_n(taken.begin() + static_cast<int>(first), bytes, false);
        }
    }
}

TEST_CASE("AddressSpace: what does not fit is refused") {
    AddressSpace space{{base, size}};
    CHECK(space.all() == Range{base, size});
    CHECK(space.take(size + 1, 1) == 0);
    CHECK(space.take(1, 0x10000) == 0);
    CHECK(space.take(size, 1) == base);
    CHECK(space.take(1, 1) == 0);
    space.give({base + 10, 5});
    CHECK(space.take(6, 1) == 0);
    CHECK(space.take(5, 1) == base + 10);
}

TEST_CASE("AddressSpace: alignment is of the address, not of the place in the space") {
    AddressSpace space{{0x1001, 0x100}};
    CHECK(space.take(0x10, 0x40) == 0x1040);
    CHECK(space.take(0x10, 1) == 0x1001);
}

} // namespace arena_address_space_test
