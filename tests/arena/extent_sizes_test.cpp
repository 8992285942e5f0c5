// Growth wastes little and takes few handles; sets of ranges are what maps of bytes say.
#include "memsaver/arena/extent_sizes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace arena_extent_sizes_test {

using namespace memsaver;

constexpr std::size_t bytes_in_map = 48;
using Map = std::vector<bool>;

Map map_of(const std::vector<Range>& ranges) {
    Map map(bytes_in_map);
    for (const Range& range : ranges) std::fill_n(map.begin() + static_cast<int>(range.address), range.bytes, true);
    return map;
}

/// The ranges of a map, as long as they can be.
std::vector<Range> ranges_of(const Map& map) {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < map.size(); ++i) {
        if (!map[i]) continue;
        if (i > 0 && map[i - 1]) {
            ranges.back().bytes += 1;
        } else {
            ranges.push_back({i, 1});
        }
    }
    return ranges;
}

/// Sorted, without overlap; some lie side by side.
std::vector<Range> random_ranges(std::mt19937_64& random) {
    std::vector<Range> ranges;
    for (std::size_t at = random() % 4; at < bytes_in_map;) {
        const std::size_t bytes = std::min<std::size_t>(1 + random() % 7, bytes_in_map - at);
        ranges.push_back({at, bytes});
        at += bytes + (random() % 2 == 0 ? 0 : random() % 6);
    }
    return ranges;
}

TEST_CASE("growth_step: never more than a sixteenth or 32 MiB ahead, at most the largest extent") {
    for (const std::size_t granularity : {4_KiB, 64_KiB, 2_MiB, 64_MiB}) {
        std::size_t last = 0;
        for (std::size_t owned = 0; owned < 64_GiB;
             owned += std::max(granularity, owned / 16 / granularity * granularity)) {
            const std::size_t step = growth_step(owned, granularity);
            CAPTURE(owned);
            CHECK((std::has_single_bit(step) || step % 32_MiB == 0));
            CHECK(step >= granularity);
            CHECK(step <= std::max({granularity, std::size_t{32_MiB}, owned / 16}));
            CHECK(step <= std::max(granularity, largest_extent));
            CHECK(step >= last); // it never becomes hesitant
            last = step;
        }
        CHECK(last == largest_extent);
    }
}

TEST_CASE("growth_step: 8 GiB in requests of one granule take few handles") {
    std::size_t owned = 0;
    std::size_t steps = 0;
    while (owned < 8_GiB) {
        owned += growth_step(owned, 2_MiB);
        ++steps;
    }
    CHECK(steps <= 80);
    CHECK(owned <= 8_GiB + 8_GiB / 16);
}

TEST_CASE("split_into_extents: as few as can be, without gaps") {
    for (const std::size_t bytes : {std::size_t{2_MiB}, largest_extent, largest_extent + 2_MiB, 3 * largest_extent}) {
        std::vector<Range> pieces{{1, 1}}; // is added to
        split_into_extents({4_GiB, bytes}, 2_MiB, pieces);
        CHECK(pieces.front() == Range{1, 1});
        CHECK(pieces.size() == 1 + (bytes + largest_extent - 1) / largest_extent);
        Address at = 4_GiB;
        for (std::size_t i = 1; i < pieces.size(); ++i) {
            CHECK(pieces[i].address == at);
            CHECK(pieces[i].bytes <= largest_extent);
            CHECK(pieces[i].bytes % 2_MiB == 0);
            at = pieces[i].end();
        }
        CHECK(at == 4_GiB + bytes);
    }
    std::vector<Range> none;
    split_into_extents({4_GiB, 0}, 2_MiB, none);
    CHECK(none.empty());
    split_into_extents({0, 8_GiB}, 4_GiB, none); // a machine whose pages are larger than the largest extent
    CHECK(none.size() == 2);
}

TEST_CASE("without and intersection are those of maps of bytes") {
    std::mt19937_64 random{11};
    for (int i = 0; i < 5000; ++i) {
        const std::vector<Range> a = random_ranges(random);
        const std::vector<Range> b = i % 10 == 0 ? std::vector<Range>{} : random_ranges(random);
        Map left = map_of(a);
        Map both = map_of(a);
        const Map other = map_of(b);
        for (std::size_t at = 0; at < bytes_in_map; ++at) {
            left[at] = left[at] && !other[at];
            both[at] = both[at] && other[at];
        }
        REQUIRE(without(a, b) == ranges_of(left));
        REQUIRE(intersection(a, b) == ranges_of(both));
    }
    CHECK(without({}, {{1, 2}}).empty());
}

TEST_CASE("sort_by_address sorts by address") {
    std::vector<Range> ranges{{30, 1}, {10, 5}, {20, 2}};
    sort_by_address(ranges);
    CHECK(ranges == std::vector<Range>{{10, 5}, {20, 2}, {30, 1}});
}

} // namespace arena_extent_sizes_test
