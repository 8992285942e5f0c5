// Space is never allocated twice, and adjacent free space is merged.
#include "memsaver/backup/store.hpp"
#include "support/machines.hpp"

namespace backup_location_space_test {
using namespace test;

TEST_CASE("LocationSpace: consecutive ranges are adjacent in a fresh region, and the best fit is taken") {
    LocationSpace space;
    CHECK(space.take(1) == 0);
    space.add(1000, 100);
    CHECK(space.take(40) == 1000);
    CHECK(space.take(40) == 1040);
    CHECK(space.take(40) == 0);
    space.add(5000, 30);
    CHECK(space.take(25) == 5000); // not from the 20 at 1080, which are too few
    CHECK(space.take(20) == 1080); // exact fit
    CHECK(space.take(5) == 5025);
    CHECK(space.take(1) == 0);
}

TEST_CASE("LocationSpace: removes a region only if all of it is free") {
    LocationSpace space;
    space.add(1000, 300);
    CHECK(!space.remove({5000, 1}));
    CHECK(space.take(100) == 1000);
    CHECK(!space.remove({1000, 300}));
    CHECK(!space.remove({1100, 300}));
    space.give(1000, 100);
    CHECK(space.free_bytes() == 300);
    CHECK(space.remove({1000, 300}));
    CHECK(space.free_bytes() == 0);
    CHECK(!space.has_room(1000));
    CHECK(!space.remove({1000, 300}));
    CHECK(space.take(1) == 0);
    space.add(7, 7);
    space.clear();
    CHECK(space.take(1) == 0);
}

TEST_CASE("LocationSpace: random operations against a map of bytes") {
    constexpr std::size_t bytes = 512;
    std::vector<char> taken(bytes + 1, 1);
    LocationSpace space;
    space.add(1, bytes);
    std::fill(taken.begin() + 1, taken.end(), 0);
    std::vector<std::pair<std::uint64_t, std::size_t>> held;
    std::uint64_t state = 12345;
    const auto random = [&](std::size_t below) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::size_t>(state >> 33U) % below;
    };
    for (int i = 0; i < 20'000; ++i) {
        if (held.empty() || random(2) == 0) {
            const std::size_t want = 1 + random(40);
            const std::uint64_t at = space.take(want);
            if (at == 0) {
                std::size_t run = 0; // there really was no space
                for (std::size_t b = 1; b <= bytes; ++b) {
                    run = taken[b] != 0 ? 0 : run + 1;
                    REQUIRE(run < want);
                }
                continue;
            }
            for (std::size_t b = at; b < at + want; ++b) REQUIRE(std::exchange(taken[b], 1) == 0);
            held.emplace_back(at, want);
        } else {
            const std::size_t which = random(held.size());
            const auto [at, size] = held[which];
            space.give(at, size);
            std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(at), size, 0);
            held[which] = held.back();
            held.pop_back();
        }
    }
    for (const auto& [at, size] : held) space.give(at, size);
    CHECK(space.take(bytes) == 1);
}

TEST_CASE("LocationSpace: no range reaches from one region into an adjacent one") {
    for (const bool forwards : {true, false}) {
        LocationSpace space;
        space.add(forwards ? 1000 : 1100, 100);
        space.add(forwards ? 1100 : 1000, 100);
        CHECK(space.take(101) == 0);
        // The tail of one and the head of the other, free at the same time.
        CHECK(space.take(100) == 1000);
        CHECK(space.take(100) == 1100);
        space.give(forwards ? 1060 : 1100, 40);
        space.give(forwards ? 1100 : 1060, 40);
        CHECK(space.take(41) == 0);
        CHECK(!space.remove({1000, 100}));
        space.give(1000, 60);
        CHECK(space.remove({1000, 100})); // each space is removed separately
        CHECK(!space.remove({1100, 100}));
        space.give(1140, 60);
        CHECK(space.take(100) == 1100);
    }
}

TEST_CASE("LocationSpace: a region that was removed leaves no border behind") {
    LocationSpace space;
    space.add(1000, 100);
    CHECK(space.remove({1000, 100}));
    space.add(900, 300);
    CHECK(space.take(100) == 900);
    CHECK(space.take(100) == 1000);
    space.give(900, 100);
    space.give(1000, 100);
    CHECK(space.take(300) == 900);
    space.clear();
    space.add(950, 200);
    CHECK(space.take(50) == 950);
    CHECK(space.take(50) == 1000);
    space.give(1000, 50);
    space.give(950, 50);
    CHECK(space.take(200) == 950);
}
} // namespace backup_location_space_test
