// Addresses are taken from the lowest gap and freed in arbitrary pieces.
#include "memsaver/arena/addresses.hpp"
#include "support/machines.hpp"

namespace arena_addresses_test {
using namespace test;

constexpr std::size_t unit = 2_MiB;
constexpr std::size_t units = 64;

struct Space {
    Space() {
        Reservation reservation;
        REQUIRE(reservation.open(driver, (units + 1) * unit, 32 * unit).ok());
        base = reservation.get().address;
        addresses.add(std::move(reservation), units * unit);
    }
    ~Space() { CHECK(addresses.close().ok()); }

    HostDriver driver{8_MiB};
    Addresses addresses;
    Address base = 0;
};

/// Returns the lowest gap of a map of every unit, or 0.
Address lowest_gap(Address base, const std::vector<char>& taken, std::size_t wanted, std::size_t alignment) {
    for (std::size_t at = 0; at + wanted <= units; ++at) {
        if (at % alignment != 0) continue;
        const auto first = taken.begin() + static_cast<int>(at);
        if (std::none_of(first, first + static_cast<int>(wanted), [](char yes) { return yes != 0; }))
            return base + at * unit;
    }
    return 0;
}

TEST_CASE("Addresses: random takes and gives against a map of every unit") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        Space space;
        std::vector<char> taken(units);
        for (int step = 0; step < 500; ++step) {
            if (random() % 2 == 0) {
                const std::size_t wanted = 1 + random() % 16;
                const std::size_t alignment = std::size_t{1} << (random() % 5);
                const Address expected = lowest_gap(space.base, taken, wanted, alignment);
                REQUIRE(space.addresses.take(wanted * unit, alignment * unit) == expected);
                if (expected != 0)
                    std::fill_n(taken.begin() + static_cast<int>((expected - space.base) / unit), wanted, char{1});
                continue;
            }
            // A part of what is taken: it may begin and end within ranges and span several adjacent ones.
            const std::size_t first = random() % units;
            std::size_t end = first;
            while (end < units && taken[end] != 0) ++end;
            if (end == first) continue;
            const std::size_t bytes = 1 + random() % (end - first);
            REQUIRE(space.addresses.give({space.base + first * unit, bytes * unit}));
            std::fill_n(taken.begin() + static_cast<int>(first), bytes, char{0});
        }
    }
}
} // namespace arena_addresses_test
