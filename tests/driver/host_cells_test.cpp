// The owner of host pages populates and pins them cell by cell, and frees all of them.
#include "support/machines.hpp"

namespace driver_host_cells_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;
using Region = HostCells;

Machine machine(std::size_t pin_limit = 1_GiB) { return Machine{HostDriver{64_MiB, {.pin_limit = pin_limit}}}; }

TEST_CASE("HostCells: reserves addresses at once, and memory cell by cell") {
    const Machine driver = machine();
    {
        Region mapping{driver, 2 * Region::cell_bytes + 1};
        CHECK(mapping.bytes() == 2 * Region::cell_bytes + 4096);
        CHECK(mapping.end() - mapping.address() == mapping.bytes());
        CHECK(driver.calls(Call::populate_host) == 0);
        CHECK(!mapping.ready(mapping.address(), false));
        CHECK(mapping.prepare(mapping.address(), false).ok());
        CHECK(mapping.ready(mapping.address(), false));
        CHECK(!mapping.ready(mapping.address(), true));
        CHECK(!mapping.ready(mapping.end() - 1, false));
        CHECK(driver.pinned_bytes() == 0);
        CHECK(mapping.prepare(mapping.address(), true).ok());
        CHECK(mapping.ready(mapping.address(), true));
        CHECK(driver.calls(Call::populate_host) == 1); // once
        CHECK(mapping.prepare(mapping.address(), true).ok());
        CHECK(driver.calls(Call::pin_host) == 1);
        for (std::uintptr_t at = mapping.address(); at < mapping.end(); at += 2_MiB)
            CHECK(mapping.prepare(at, true).ok());
        CHECK(driver.pinned_bytes() == mapping.bytes()); // all of it, and nothing twice
        for (std::uintptr_t at = mapping.address(); at < mapping.end(); at += 1_MiB) CHECK(mapping.ready(at, true));
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}

TEST_CASE("HostCells: can be populated as a whole without pinning") {
    const Machine driver = machine();
    Region mapping{driver, 2 * Region::cell_bytes + 1};
    driver.fail({.call = Call::populate_host, .nth = 2, .kind = StatusKind::out_of_host_memory});
    CHECK(mapping.take().kind == StatusKind::out_of_host_memory);
    CHECK(mapping.take().ok());
    for (std::uintptr_t at = mapping.address(); at < mapping.end(); at += 2_MiB) CHECK(mapping.ready(at, false));
    CHECK(driver.calls(Call::pin_host) == 0);
}

TEST_CASE("HostCells: an error says whose pages they are") {
    const Machine driver = machine();
    driver.fail({.call = Call::map_host, .kind = StatusKind::out_of_host_memory});
    try {
        const Region mapping{driver, 4_MiB, {}, "tag \"a\", "};
        FAIL_CHECK("nothing was thrown");
    } catch (const OutOfHostMemory& error) {
        CHECK(std::string{error.what()}.find("map host pages (tag \"a\", 4.00 MiB) failed") != std::string::npos);
    }
}

TEST_CASE("HostCells: on a lost device the pages are freed all the same") {
    const Machine driver = machine();
    {
        Region mapping{driver, 4_MiB};
        CHECK(mapping.prepare(mapping.address(), true).ok());
        driver.fail({.call = Call::unpin_host, .kind = StatusKind::gone});
    }
    CHECK(driver.calls(Call::unmap_host) == 1);
}

TEST_CASE("HostCells: several threads, the same cells and others") {
    const Machine driver = machine();
    {
        Region mapping{driver, 3 * Region::cell_bytes};
        Threads{4, [&](std::size_t) {
                    for (std::uintptr_t at = mapping.address(); at < mapping.end(); at += 2_MiB) {
                        CHECK(mapping.prepare(at, true).ok());
                        CHECK(mapping.ready(at, true));
                    }
                }};
        CHECK(driver.pinned_bytes() == mapping.bytes());
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}
} // namespace driver_host_cells_test
