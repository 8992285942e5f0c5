// Shared read-only pages behind addresses: which blocks, whose ranges, and what becomes of them when calls fail.
#include "memsaver/arena/quarantine_pages.hpp"

#include "memsaver/driver/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace arena_quarantine_pages_test {

using namespace memsaver;
using Machine = FaultyDriver<HostDriver>;

struct Fixture {
    [[nodiscard]] Range at(std::size_t offset, std::size_t bytes) const {
        return {addresses.address() + offset, bytes};
    }

    Machine driver{HostDriver{1_GiB}};
    Reservation<Machine> addresses{driver, 256_MiB, 2_MiB};
    std::shared_ptr<QuarantineBlocks<Machine>> blocks =
        std::make_shared<QuarantineBlocks<Machine>>(driver, Quarantine{.block_bytes = 16_MiB});
};

TEST_CASE("QuarantinedRanges: a few shared blocks stand behind any range, and go with the last") {
    Fixture f;
    {
        QuarantinedRanges<Machine> first{f.blocks};
        QuarantinedRanges<Machine> second{f.blocks};
        first.reserve(2);
        second.reserve(1);
        REQUIRE(first.cover({f.at(0, 102_MiB), f.at(110_MiB, 2_MiB)}).ok()); // 6 x 16, 4, 2; and 2
        CHECK(f.driver.calls(Call::map) == 9);
        CHECK(f.driver.calls(Call::allow_reading) == 2);
        CHECK(f.blocks->bytes() == 22_MiB);
        CHECK(f.driver.handle_bytes() == 22_MiB);
        REQUIRE(second.cover({f.at(128_MiB, 64_MiB)}).ok());
        CHECK(f.driver.handle_bytes() == 22_MiB);
        unsigned char byte = 1;
        StreamRef stream;
        REQUIRE(f.driver.open_stream(stream).ok());
        CHECK(f.driver.copy_to_host(&byte, f.addresses.address() + 101_MiB, 1, stream).ok()); // a stray read passes
        CHECK_FALSE(f.driver.inner().fill(f.addresses.address(), 1, 1, stream).ok());         // a write does not
        REQUIRE(f.driver.drain().ok());
        REQUIRE(f.driver.close_stream(stream).ok());
        CHECK(first.uncover().ok());
        CHECK(f.driver.handle_bytes() == 22_MiB);
        CHECK(second.uncover().ok());
        CHECK(f.driver.handle_bytes() == 0);
        CHECK(f.driver.outstanding().mappings == 0);
        CHECK(first.uncover().ok()); // nothing to do
    }
}

TEST_CASE("QuarantinedRanges: without blocks nothing happens; without room it stops") {
    Fixture f;
    QuarantinedRanges<Machine> none;
    none.reserve(1);
    CHECK(none.cover({f.at(0, 2_MiB)}).ok());
    CHECK(none.uncover().ok());
    QuarantinedRanges<Machine> full{f.blocks};
    CHECK(full.cover({f.at(0, 2_MiB)}).ok());
    CHECK(f.driver.calls(Call::map) == 0);
}

TEST_CASE("QuarantinedRanges: whatever call fails, the rest is covered and nothing is lost") {
    for (const Call call : {Call::granularity, Call::create, Call::map, Call::allow_reading, Call::unmap}) {
        for (std::uint64_t nth = 1; nth <= 3; ++nth) {
            CAPTURE(call_name(call));
            CAPTURE(nth);
            Fixture f;
            {
                QuarantinedRanges<Machine> ranges{f.blocks};
                ranges.reserve(3);
                f.driver.fail({.call = call, .nth = nth});
                (void)ranges.cover({f.at(0, 22_MiB), f.at(32_MiB, 4_MiB)});
                (void)ranges.uncover();
                f.driver.heal();
                CHECK(ranges.uncover().ok());
            }
            f.blocks.reset();
            CHECK(f.driver.outstanding().mappings == 0);
            CHECK(f.driver.handle_bytes() == 0);
            CHECK(f.driver.violations().empty());
        }
    }
}

TEST_CASE("QuarantinedRanges: what could not be undone stays known, and is undone later") {
    Fixture f;
    QuarantinedRanges<Machine> ranges{f.blocks};
    ranges.reserve(1);
    f.driver.fail({.call = Call::allow_reading, .lasting = Lasting::onwards});
    f.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
    CHECK_FALSE(ranges.cover({f.at(0, 6_MiB)}).ok());
    CHECK(f.driver.outstanding().mappings == 2);
    CHECK_FALSE(ranges.uncover().ok());
    f.driver.heal();
    CHECK(ranges.uncover().ok());
    CHECK(f.driver.outstanding().mappings == 0);
    CHECK(f.driver.handle_bytes() == 0);
}

TEST_CASE("QuarantinedRanges: of what is uncovered in part, the rest is to be covered again") {
    Fixture f;
    QuarantinedRanges<Machine> ranges{f.blocks};
    ranges.reserve(3);
    REQUIRE(ranges.cover({f.at(0, 16_MiB), f.at(32_MiB, 8_MiB), f.at(64_MiB, 8_MiB)}).ok());
    std::vector<Range> rest;
    REQUIRE(ranges.uncover({f.at(4_MiB, 2_MiB), f.at(32_MiB, 8_MiB)}, rest).ok());
    CHECK(rest == std::vector<Range>{f.at(0, 4_MiB), f.at(6_MiB, 10_MiB)});
    CHECK(f.driver.outstanding().mappings == 1); // the third
    ranges.reserve(rest.size());
    REQUIRE(ranges.cover(rest).ok());
    f.driver.fail({.call = Call::unmap});
    CHECK_FALSE(ranges.uncover({f.at(2_MiB, 2_MiB), f.at(64_MiB, 2_MiB)}, rest).ok()); // the first of them stays
    CHECK(rest.size() == 1);
    CHECK(ranges.uncover().ok());
    CHECK(f.driver.outstanding().mappings == 0);
    CHECK(f.driver.handle_bytes() == 0);
    CHECK(ranges.uncover({f.at(0, 256_MiB)}, rest).ok()); // nothing to do
    CHECK(rest.empty());
}

} // namespace arena_quarantine_pages_test
