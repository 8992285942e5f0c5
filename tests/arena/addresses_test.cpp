// Addresses are taken from the lowest gap and freed in arbitrary pieces.
#include "memsaver/arena/addresses.hpp"
#include "support/machines.hpp"
#include "support/reserved.hpp"

namespace arena_addresses_test {
using namespace test;

constexpr std::size_t unit = 2_MiB;
constexpr std::size_t units = 64;

struct Space {
    Space() {
        Reservation reservation = test::reserved(driver, (units + 1) * unit, 32 * unit);
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

TEST_CASE("Addresses: a range that does not fit is refused") {
    Space space;
    CHECK(space.addresses.bytes() == units * unit);
    CHECK(space.addresses.contain(space.base));
    CHECK(space.addresses.contain(space.base + units * unit - 1));
    CHECK_FALSE(space.addresses.contain(space.base + units * unit));
    CHECK_FALSE(space.addresses.contain(space.base - 1));
    CHECK(space.addresses.take((units + 1) * unit, unit) == 0);
    CHECK(space.addresses.take(units * unit, unit) == space.base);
    CHECK(space.addresses.take(unit, unit) == 0);
    CHECK(space.addresses.give({space.base + 10 * unit, 5 * unit}));
    CHECK(space.addresses.take(6 * unit, unit) == 0);
    CHECK(space.addresses.take(5 * unit, unit) == space.base + 10 * unit);
}

TEST_CASE("Addresses: a gap keeps ranges apart") {
    HostDriver driver{8_MiB};
    Addresses addresses{unit};
    Reservation reservation = test::reserved(driver, 9 * unit, unit);
    const Address base = reservation.get().address;
    addresses.add(std::move(reservation), 8 * unit);
    CHECK(addresses.take(2 * unit, unit) == base);
    CHECK(addresses.take(2 * unit, unit) == base + 3 * unit);
    CHECK(addresses.give({base, 2 * unit}));
    CHECK(addresses.take(2 * unit, unit) == base);
    CHECK(addresses.take(3 * unit, unit) == 0);
    CHECK(addresses.close().ok());
}

TEST_CASE("Addresses: several segments, of which the first that has room serves") {
    HostDriver driver{8_MiB};
    Addresses addresses;
    for (int i = 0; i < 2; ++i) addresses.add(test::reserved(driver, 3 * unit, unit), 2 * unit);
    CHECK(addresses.bytes() == 4 * unit);
    const Address first = addresses.take(2 * unit, unit);
    const Address second = addresses.take(unit, unit);
    CHECK(first != 0);
    CHECK(second != 0);
    CHECK(addresses.take(2 * unit, unit) == 0);
    CHECK(addresses.give({first, unit}));
    CHECK(addresses.take(unit, unit) == first);
    CHECK(addresses.close().ok());
    CHECK(addresses.bytes() == 0);
}
} // namespace arena_addresses_test
