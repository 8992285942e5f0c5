// Sizes: literals, rounding up to the limit of overflow, and formatting.
#include "memsaver/core/sizes.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace core_sizes_test {

using namespace memsaver;
using namespace memsaver::detail;

namespace {
constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
}

TEST_CASE("literals are binary units") {
    CHECK(1_KiB == 1024);
    CHECK(3_MiB == 3u * 1024 * 1024);
    CHECK(5_GiB == std::size_t{5} * 1024 * 1024 * 1024);
}

TEST_CASE("rounding goes to multiples of the unit") {
    for (const std::size_t unit : {std::size_t{1}, std::size_t{256}, 2_MiB}) {
        CAPTURE(unit);
        CHECK(align_up(0, unit) == 0);
        CHECK(align_up(1, unit) == unit);
        CHECK(align_up(unit, unit) == unit);
        CHECK(align_up(unit + 1, unit) == 2 * unit);
        CHECK(align_down(unit - 1, unit) == 0);
        CHECK(align_down(unit, unit) == unit);
        CHECK(align_down(2 * unit - 1, unit) == (unit == 1 ? 1 : unit));
    }
}

TEST_CASE("sizes that cannot be rounded up are detected before they overflow") {
    CHECK(can_align_up(largest, 1));
    CHECK(can_align_up(largest - 255, 256));
    CHECK_FALSE(can_align_up(largest - 254, 256));
    CHECK_FALSE(can_align_up(largest, 2_MiB));
}

TEST_CASE("sizes are printed in the largest unit that keeps them at one or more") {
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(1_KiB) == "1.00 KiB");
    CHECK(format_bytes(1_GiB + 512_MiB) == "1.50 GiB");
    CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16.00 EiB");
}

TEST_CASE("addresses are printed in hexadecimal") {
    CHECK(format_address(0) == "0x0");
    CHECK(format_address(0x7f0000000000) == "0x7f0000000000");
}

} // namespace core_sizes_test
