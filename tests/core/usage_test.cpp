// Usage as JSON: every field, names that need quoting, empty usage (saver/usage_test.cpp tests its text form); and
// reports: sums of their rows, in a line.
#include "support/machines.hpp"

namespace core_usage_test {
using namespace test;

TEST_CASE("usage as JSON has every field") {
    ArenaUsage row{"weights", 1, "host", "paused", 2, 3, 4, 5, 6, 7, 8, 15, 9, 10};
    row.users = 16;
    row.evictable = true;
    row.priority = -17;
    row.age = std::chrono::nanoseconds{18};
    const ResidencyUsage residency{30, 31, 32, 33, 34, 35, 36, 37};
    const DeviceUsage device{1, 20, 21, 22, 23, true};
    CHECK(
        to_json(Usage{{row}, {device}, residency, 40}) ==
        R"({"arenas":[{"tag":"weights","device":1,"policy":"host","state":"paused","reserved_bytes":2,"mapped_bytes":3,)"
        R"("held_bytes":4,"used_bytes":5,"paused_bytes":6,"backed_up_bytes":7,"blocks":8,"elastic_bytes":15,)"
        R"("peak_mapped_bytes":9,)"
        R"("pauses":10,)"
        R"("users":16,"evictable":true,"priority":-17,"age_ns":18}],)"
        R"("devices":[{"device":1,"total_bytes":20,"used_bytes":21,"mapped_bytes":22,"unexplained_bytes":23,)"
        R"("known":true}],)"
        R"("residency":{"hits":30,"misses":31,"waits":32,"evictions":33,"brought_bytes":34,"restored_bytes":35,)"
        R"("evicted_bytes":36,"saved_bytes":37},"host_bytes":40})");
}

TEST_CASE("usage as a table shows the uses of a tag that may be evicted") {
    ArenaUsage row{"weights", 0, "host", "paused"};
    row.users = 3;
    row.evictable = true;
    row.priority = -17;
    row.age = std::chrono::milliseconds{2500};
    std::ostringstream table;
    table << Usage{{row}, {}};
    CHECK(contains(table.str(), "users    age  priority\n"));
    CHECK(contains(table.str(), "    3  2.5 s       -17\n"));
}

TEST_CASE("usage as JSON: names are quoted, a device that does not answer is not known") {
    ArenaUsage row;
    row.tag = "a \"tag\"\n\\";
    const DeviceUsage lost{.device = 0, .known = false};
    const std::string text = to_json(Usage{{row}, {lost}});
    CHECK(text.find(R"("tag":"a \"tag\"\u000a\\")") != std::string::npos);
    CHECK(text.find("\"known\":false") != std::string::npos);
}

TEST_CASE("Report: sums of its rows, and the rows") {
    Report report;
    TagReport row{"a", 1, 1, 20, 300, 4000, 50000, 600000};
    row.waited = 7ns;
    report.add(row);
    report.add({"b", 0, 2, 30, 400, 5000, 60000, 700000});
    CHECK(std::array{report.released_bytes, report.saved_bytes, report.restored_bytes, report.mapped_bytes,
                     report.handed_bytes,
                     report.held_bytes} == std::array<std::size_t, 6>{3, 50, 700, 9000, 110000, 1300000});
    REQUIRE(report.tags.size() == 2);
    CHECK(report.tags[0].tag == "a");
    CHECK(report.tags[0].waited == 7ns);
    CHECK(report.tags[1].tag == "b");
    CHECK(report.tags[1].device == 0);
}

TEST_CASE("Report: in a line") {
    Report paused;
    paused.add({.tag = "kv_cache", .released_bytes = 1_GiB});
    paused.elapsed = std::chrono::microseconds{600};
    CHECK(printed(paused) == "released 1.00 GiB, saved 0 B, still held 0 B, 0.6 ms");
    Report resumed;
    resumed.add({.tag = "weights", .restored_bytes = 3_MiB, .mapped_bytes = 4_MiB, .held_bytes = 2_MiB});
    resumed.elapsed = std::chrono::milliseconds{12};
    CHECK(printed(resumed) == "mapped 4.00 MiB, restored 3.00 MiB, still held 2.00 MiB, 12.0 ms");
    CHECK(printed(Report{}) == "released 0 B, saved 0 B, still held 0 B, 0.0 ms");
}
} // namespace core_usage_test
