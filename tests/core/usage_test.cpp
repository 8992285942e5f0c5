// Usage as JSON: every field, names that need quoting, empty usage. saver/usage_test.cpp tests its text form.
#include "memsaver/core/core.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

namespace core_usage_test {

using namespace memsaver;

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

TEST_CASE("usage as JSON: several rows, and none") {
    CHECK(to_json(Usage{{}, {}}).rfind(R"({"arenas":[],"devices":[],"residency":{"hits":0,)", 0) == 0);
    const std::string text = to_json(Usage{{ArenaUsage{}, ArenaUsage{}}, {DeviceUsage{}, DeviceUsage{}}});
    CHECK(text.find("},{\"tag\"") != std::string::npos);
    CHECK(text.find("},{\"device\"") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("usage as JSON: names are quoted, a device that does not answer is not known") {
    ArenaUsage row;
    row.tag = "a \"tag\"\n\\";
    const DeviceUsage lost{.device = 0, .known = false};
    const std::string text = to_json(Usage{{row}, {lost}});
    CHECK(text.find(R"("tag":"a \"tag\"\u000a\\")") != std::string::npos);
    CHECK(text.find("\"known\":false") != std::string::npos);
}

} // namespace core_usage_test
