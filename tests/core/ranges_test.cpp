// Sets of ranges agree with byte maps.
#include "support/machines.hpp"

namespace core_ranges_test {
using namespace test;

constexpr std::size_t bytes_in_map = 48;
using Map = std::vector<bool>;

Map map_of(const std::vector<Range>& ranges) {
    Map map(bytes_in_map);
    for (const Range& range : ranges) std::fill_n(map.begin() + static_cast<int>(range.address), range.bytes, true);
    return map;
}

/// Returns the maximal ranges of a map.
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

/// Returns sorted ranges without overlap; some are adjacent.
std::vector<Range> random_ranges(std::mt19937_64& random) {
    std::vector<Range> ranges;
    for (std::size_t at = random() % 4; at < bytes_in_map;) {
        const std::size_t bytes = std::min<std::size_t>(1 + random() % 7, bytes_in_map - at);
        ranges.push_back({at, bytes});
        at += bytes + (random() % 2 == 0 ? 0 : random() % 6);
    }
    return ranges;
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

static_assert(Range{}.bytes == 0 && Range{}.end() == 0);
} // namespace core_ranges_test
