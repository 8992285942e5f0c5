// A range is an address and a size.
#include "memsaver/core/handles.hpp"

#include <doctest/doctest.h>

namespace core_range_test {

using namespace memsaver;

static_assert(Range{}.bytes == 0 && Range{}.end() == 0);

TEST_CASE("Range: ends after its last byte") {
    const Range range{0x1000, 0x200};
    CHECK(range.end() == 0x1200);
    CHECK(range == Range{0x1000, 0x200});
    CHECK(range != Range{0x1000, 0x201});
    CHECK(range != Range{0x1001, 0x200});
}

TEST_CASE("Range: ranges overlap where they have a byte in common") {
    const Range range{0x1000, 0x200};
    CHECK(overlap(range, range));
    CHECK(overlap(range, {0x11FF, 1}));
    CHECK(overlap({0, 0x1001}, range));
    CHECK(!overlap(range, {0x1200, 1}));
    CHECK(!overlap({0, 0x1000}, range));
}

} // namespace core_range_test
