// Regions: which tag a thread's allocations belong to.
#include "support/machines.hpp"

namespace saver_region_test {
using namespace test;

static_assert(!std::is_move_constructible_v<Region> && !std::is_copy_constructible_v<Region>);

TEST_CASE_FIXTURE(OnSaver, "an inner region overrides the outer one, until it ends" * on_machines) {
    const auto outer = saver.region("outer", Zero{});
    (void)saver.allocate(1_MiB);
    {
        const auto inner = saver.region("inner");
        (void)saver.allocate(2_MiB);
        (void)outer.allocate(4_MiB); // by name, whatever region is innermost
        {
            const auto again = saver.region("outer");
            (void)saver.allocate(8_MiB);
        }
        (void)saver.allocate(16_MiB);
    }
    (void)saver.allocate(32_MiB);
    MemorySaver another{machine.driver};
    CHECK_THROWS_AS((void)another.allocate(1), Misuse); // a region is one saver's
    CHECK(row_of(saver, "outer").used_bytes == 45_MiB);
    CHECK(row_of(saver, "inner").used_bytes == 18_MiB);
    CHECK(row_of(saver, "outer").policy == "zero");
    CHECK(row_of(saver, "inner").policy == "discard");
}

TEST_CASE_FIXTURE(OnSaver, "a region belongs to its thread" * on_machines) {
    const auto region = saver.region("here");
    std::thread{[&] {
        CHECK_THROWS_AS((void)saver.allocate(1_MiB), Misuse);
        const auto there = saver.region("there");
        (void)saver.allocate(2_MiB);
        (void)region.allocate(4_MiB); // an object that names its tag works in any thread
    }}.join();
    (void)saver.allocate(1_MiB);
    CHECK(row_of(saver, "here").used_bytes == 5_MiB);
    CHECK(row_of(saver, "there").used_bytes == 2_MiB);
}

TEST_CASE_FIXTURE(OnTold, "regions that end out of order do not disturb the others" * on_machines) {
    std::unique_ptr<Region> first{new Region(saver.region("first"))};
    std::unique_ptr<Region> second{new Region(saver.region("second"))};
    std::unique_ptr<Region> third{new Region(saver.region("third"))};
    first.reset();
    std::vector<Event> events = told.of(EventKind::ignored);
    REQUIRE(events.size() == 1);
    CHECK(contains(events[0].text, "order"));
    CHECK(events[0].tag == "first");
    (void)saver.allocate(1_MiB);
    third.reset();
    (void)saver.allocate(2_MiB);
    CHECK(row_of(saver, "third").used_bytes == 1_MiB);
    CHECK(row_of(saver, "second").used_bytes == 2_MiB);
    std::thread{[&] { second.reset(); }}.join();
    events = told.all();
    REQUIRE(events.size() == 2);
    CHECK(events[1].tag == "second");
    CHECK(events[1].device == machine.driver.device());
    CHECK_THROWS_AS((void)saver.allocate(1), Misuse);
}
} // namespace saver_region_test
