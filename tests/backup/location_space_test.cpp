// Space is never allocated twice, adjacent free space of one region is merged, and what is there is found.
#include "memsaver/backup/store.hpp"
#include "support/machines.hpp"

namespace backup_location_space_test {
using namespace test;

TEST_CASE("LocationSpace: random operations on adjacent regions against a map of bytes") {
    enum : char { none, free, taken };
    constexpr std::size_t unit = 256; // what follows counts in units
    constexpr std::array<Room, 3> regions{{{1, 200}, {201, 100}, {301, 211}}};
    constexpr std::size_t bytes = 511;
    std::vector<char> is(bytes + 1, none);
    const auto put = [&](const Room& room, char what) {
        std::fill_n(is.begin() + static_cast<std::ptrdiff_t>(room.location), room.bytes, what);
    };
    const auto all = [&](const Room& room, char what) {
        const auto begin = is.begin() + static_cast<std::ptrdiff_t>(room.location);
        return std::all_of(begin, begin + static_cast<std::ptrdiff_t>(room.bytes), [&](char c) { return c == what; });
    };
    LocationSpace space{unit};
    const auto add = [&](const Room& room) { space.add(room.location * unit, room.bytes * unit); };
    const auto take = [&](std::size_t units) { return space.take(units * unit) / unit; };
    std::vector<Room> held;
    const auto give = [&](std::size_t which) {
        space.give(held[which].location * unit, held[which].bytes * unit);
        put(held[which], free);
        held[which] = held.back();
        held.pop_back();
    };
    std::uint64_t state = 12345;
    const auto random = [&](std::size_t below) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::size_t>(state >> 33U) % below;
    };
    for (int i = 0; i < 20'000; ++i) {
        const std::size_t what = random(8);
        if (what == 0) { // a region comes or goes
            const Room region = regions[random(regions.size())];
            const bool there = !all(region, none);
            const bool idle = all(region, free);
            CHECK(space.has_room(region.location * unit) == there);
            REQUIRE(space.remove({region.location * unit, region.bytes * unit}) == idle);
            if (!there) add(region);
            if (idle || !there) put(region, there ? none : free);
        } else if (what < 4) {
            const Room made{0, 1 + random(60)};
            const std::uint64_t at = take(made.bytes);
            bool found = false;
            for (const Room& region : regions) { // there really was no space, or it is in one region
                const std::uint64_t end = region.location + region.bytes;
                if (at != 0) found = found || (region.location <= at && at + made.bytes <= end);
                for (std::uint64_t b = region.location; at == 0 && b + made.bytes <= end; ++b)
                    REQUIRE_FALSE(all({b, made.bytes}, free));
            }
            if (at == 0) continue;
            REQUIRE((found && all({at, made.bytes}, free)));
            held.push_back({at, made.bytes});
            put(held.back(), taken);
        } else if (!held.empty()) {
            give(random(held.size()));
            while (!held.empty() && random(4) != 0 && i % 64 == 0) give(0);
        }
        REQUIRE(space.free_bytes() / unit == static_cast<std::size_t>(std::count(is.begin(), is.end(), free)));
    }
    for (const Room& region : regions)
        if (all(region, none)) add(region);
    space.clear();
    CHECK(take(1) == 0);
    add({1, bytes}); // without borders of regions that were there
    for (std::size_t b = 1; b <= bytes; ++b) CHECK(take(1) == b);
    for (std::size_t b = 1; b <= bytes; ++b) space.give(b * unit, unit);
    CHECK(take(bytes) == 1);
}
} // namespace backup_location_space_test
