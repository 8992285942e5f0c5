// A report sums up its rows and prints one line.
#include "memsaver/core/report.hpp"
#include "memsaver/core/sizes.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <sstream>
#include <string>

namespace core_report_test {

using namespace memsaver;
using namespace memsaver::detail;

std::string text(const Report& report) {
    std::ostringstream out;
    out << report;
    return out.str();
}

TEST_CASE("Report: sums of its rows, and the rows") {
    Report report;
    report.add({.tag = "a",
                .device = 1,
                .released_bytes = 1,
                .saved_bytes = 20,
                .restored_bytes = 300,
                .mapped_bytes = 4000,
                .held_bytes = 50000,
                .waited = std::chrono::nanoseconds{7}});
    report.add({.tag = "b",
                .released_bytes = 2,
                .saved_bytes = 30,
                .restored_bytes = 400,
                .mapped_bytes = 5000,
                .held_bytes = 60000});
    CHECK(report.released_bytes == 3);
    CHECK(report.saved_bytes == 50);
    CHECK(report.restored_bytes == 700);
    CHECK(report.mapped_bytes == 9000);
    CHECK(report.held_bytes == 110000);
    REQUIRE(report.tags.size() == 2);
    CHECK(report.tags[0].tag == "a");
    CHECK(report.tags[0].waited == std::chrono::nanoseconds{7});
    CHECK(report.tags[1].tag == "b");
    CHECK(report.tags[1].device == 0);
}

TEST_CASE("Report: a pause in a line") {
    Report report;
    report.add({.tag = "kv_cache", .released_bytes = 1_GiB});
    report.elapsed = std::chrono::microseconds{600};
    CHECK(text(report) == "released 1.00 GiB, saved 0 B, still held 0 B, 0.6 ms");
}

TEST_CASE("Report: a resume in a line") {
    Report report;
    report.add({.tag = "weights", .restored_bytes = 3_MiB, .mapped_bytes = 4_MiB, .held_bytes = 2_MiB});
    report.elapsed = std::chrono::milliseconds{12};
    CHECK(text(report) == "mapped 4.00 MiB, restored 3.00 MiB, still held 2.00 MiB, 12.0 ms");
}

TEST_CASE("Report: nothing done") { CHECK(text({}) == "released 0 B, saved 0 B, still held 0 B, 0.0 ms"); }

} // namespace core_report_test
