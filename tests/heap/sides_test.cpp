// The side of an address after ranges were added, removed and changed sides.
#include "memsaver/heap/block_allocator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

namespace heap_sides_test {

using namespace memsaver;
using namespace memsaver::detail;

constexpr Address base = 0x10000;
enum class What : unsigned char { absent, open, shut };

TEST_CASE("Sides: random ranges against a map of every byte") {
    constexpr std::size_t size = 40;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        std::mt19937_64 random{seed};
        Sides sides;
        std::array<What, size> model{};
        for (int step = 0; step < 300; ++step) {
            const std::size_t first = random() % size;
            const std::size_t count = 1 + random() % (size - first);
            const auto paint = [&](What what) { std::fill_n(model.begin() + static_cast<int>(first), count, what); };
            switch (random() % 8) {
            case 0: {
                const Side side = random() % 2 == 0 ? Side::open : Side::shut;
                sides.set_all(side);
                for (What& each : model) {
                    if (each != What::absent) each = side == Side::open ? What::open : What::shut;
                }
                break;
            }
            case 1:
            case 2:
            case 3:
                sides.reserve_more(1);
                sides.remove({base + first, count});
                paint(What::absent);
                break;
            default: {
                if (std::any_of(model.begin() + static_cast<int>(first),
                                model.begin() + static_cast<int>(first + count),
                                [](What what) { return what != What::absent; }))
                    continue;
                const Side side = random() % 2 == 0 ? Side::open : Side::shut;
                sides.reserve_more(1);
                sides.add({base + first, count}, side);
                paint(side == Side::open ? What::open : What::shut);
            }
            }
            bool any_open = false;
            bool any_shut = false;
            for (std::size_t i = 0; i < size; ++i) {
                any_open = any_open || model[i] == What::open;
                any_shut = any_shut || model[i] == What::shut;
                if (model[i] == What::absent) continue;
                REQUIRE(sides.side(base + i) == (model[i] == What::open ? Side::open : Side::shut));
            }
            REQUIRE(sides.mixed() == (any_open && any_shut));
            Address last = 0;
            std::size_t listed = 0;
            for (const auto& part : sides.list()) {
                REQUIRE(part.begin >= last);
                REQUIRE(part.begin < part.end);
                last = part.end;
                for (Address at = part.begin; at < part.end; ++at, ++listed) {
                    REQUIRE(model[at - base] == (part.side == Side::open ? What::open : What::shut));
                }
            }
            REQUIRE(listed == size - static_cast<std::size_t>(std::count(model.begin(), model.end(), What::absent)));
        }
    }
}

TEST_CASE("Sides: the parts of a range that spans sides") {
    Sides sides;
    sides.reserve_more(3);
    sides.add({base, 10}, Side::open);
    sides.add({base + 10, 10}, Side::shut);
    sides.add({base + 20, 10}, Side::open);
    const auto parts = [&](Range range) {
        std::vector<std::tuple<Address, std::size_t, Side>> all;
        sides.for_each_part(range, [&](Range part, Side side) { all.emplace_back(part.address, part.bytes, side); });
        return all;
    };
    using Parts = std::vector<std::tuple<Address, std::size_t, Side>>;
    CHECK(parts({base + 5, 20}) ==
          Parts{{base + 5, 5, Side::open}, {base + 10, 10, Side::shut}, {base + 20, 5, Side::open}});
    CHECK(parts({base + 10, 10}) == Parts{{base + 10, 10, Side::shut}});
    CHECK(parts({base + 12, 2}) == Parts{{base + 12, 2, Side::shut}});
}

} // namespace heap_sides_test
