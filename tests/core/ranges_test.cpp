// Sets of ranges agree with byte maps; sorting is stable.
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

TEST_CASE("items are sorted by their key, and equal ones keep their order") {
    struct Item {
        int key;
        std::unique_ptr<int> place; // moved, never copied
    };
    std::vector<Item> items;
    const int keys[] = {3, -1, 3, 0, -1, 7};
    for (int i = 0; i < 6; ++i) items.push_back({keys[i], std::make_unique<int>(i)});
    sort_by(items, [](const Item& item) { return key_of(item.key); });
    std::vector<int> places;
    for (const Item& item : items) places.push_back(*item.place);
    CHECK(places == std::vector<int>{1, 4, 3, 0, 2, 5});
    const int* const first = items[0].place.get();
    sort_by(items, [](const Item& item) { return key_of(item.key); }); // sorted already
    CHECK(items[0].place.get() == first);
    std::vector<Item> none;
    sort_by(none, [](const Item& item) { return key_of(item.key); });
    CHECK(none.empty());
}

static_assert(Range{}.bytes == 0 && Range{}.end() == 0);
} // namespace core_ranges_test
