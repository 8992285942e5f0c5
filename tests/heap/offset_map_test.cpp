// The table behaves like std::unordered_map, even if all keys map to the same few slots.
#include "memsaver/heap/block_allocator.hpp"
#include "support/machines.hpp"

#include <unordered_map>

namespace heap_offset_map_test {
using namespace test;

/// Returns the slot of a key in a table of `slots`, as computed by OffsetMap.
std::size_t home(Address key, unsigned log2_slots) {
    return static_cast<std::size_t>((key >> 8U) * 0x9E3779B97F4A7C15ULL >> (64U - log2_slots));
}

/// Returns keys that all map to one of the `places` around the end of a table, so that probing and backward shifts wrap
/// around.
std::vector<Address> crowded(std::size_t count, unsigned log2_slots, std::size_t places) {
    std::vector<Address> keys;
    const std::size_t slots = std::size_t{1} << log2_slots;
    for (Address key = 256; keys.size() < count; key += 256) {
        const std::size_t shifted = (home(key, log2_slots) + places / 2) % slots;
        if (shifted < places) keys.push_back(key);
    }
    return keys;
}

void compare(const std::vector<Address>& keys, std::uint64_t seed, int steps) {
    std::mt19937_64 random{seed};
    OffsetMap map;
    map.reserve(keys.size());
    std::unordered_map<Address, std::uint32_t> model;
    for (int step = 0; step < steps; ++step) {
        const Address key = keys[random() % keys.size()];
        if (random() % 2 == 0) {
            const auto value = static_cast<std::uint32_t>(random() % 1000);
            map.insert(key, value);
            model[key] = value;
        } else {
            map.erase(key);
            model.erase(key);
        }
        for (const Address each : keys) {
            const auto known = model.find(each);
            REQUIRE(map.find(each) == (known == model.end() ? OffsetMap::none : known->second));
        }
    }
}

TEST_CASE("OffsetMap: keys with the same place, around the end of the table") {
    // A capacity of 24 keys makes a table of 128 slots.
    compare(crowded(24, 7, 1), 3, 4000);
    compare(crowded(24, 7, 2), 4, 4000);
    compare(crowded(24, 7, 9), 5, 4000);
}
} // namespace heap_offset_map_test
