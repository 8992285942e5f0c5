// The owner of host pages takes and pins them cell by cell, and gives all of it back.
#include "memsaver/memory/host_region.hpp"

#include "memsaver/driver/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace host_region_test {

using namespace memsaver;
using Machine = FaultyDriver<HostDriver>;
using Region = HostRegion<Machine>;

Machine machine(std::size_t pin_limit = 1_GiB) { return Machine{HostDriver{64_MiB, {.pin_limit = pin_limit}}}; }

} // namespace host_region_test

using namespace host_region_test;

TEST_CASE("HostRegion: takes addresses at once, and memory cell by cell") {
    const Machine driver = machine();
    {
        Region region{driver, 2 * Region::cell_bytes + 1};
        CHECK(region.bytes() == 2 * Region::cell_bytes + 2_MiB);
        CHECK(region.end() - region.address() == region.bytes());
        CHECK(driver.calls(Call::populate_host) == 0);
        CHECK(!region.ready(region.address(), false));
        CHECK(region.prepare(region.address(), false).ok());
        CHECK(region.ready(region.address(), false));
        CHECK(!region.ready(region.address(), true));
        CHECK(!region.ready(region.end() - 1, false));
        CHECK(driver.pinned_bytes() == 0);
        CHECK(region.prepare(region.address(), true).ok());
        CHECK(region.ready(region.address(), true));
        CHECK(driver.calls(Call::populate_host) == 1); // once
        CHECK(region.prepare(region.address(), true).ok());
        CHECK(driver.calls(Call::pin_host) == 1);
        for (std::uintptr_t at = region.address(); at < region.end(); at += 2_MiB) CHECK(region.prepare(at, true).ok());
        CHECK(driver.pinned_bytes() == region.bytes()); // all of it, and nothing twice
        for (std::uintptr_t at = region.address(); at < region.end(); at += 1_MiB) CHECK(region.ready(at, true));
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}

TEST_CASE("HostRegion: cells lie between multiples of the cell's size") {
    const Machine driver = machine();
    Region region{driver, 3 * Region::cell_bytes};
    CHECK(region.prepare(region.address(), true).ok());
    const std::uintptr_t next = align_up(region.address() + 1, Region::cell_bytes);
    CHECK(region.ready(next - 1, true));
    CHECK(!region.ready(next, false));
    CHECK(driver.pinned_bytes() == next - region.address());
}

TEST_CASE("HostRegion: what is refused can be tried again") {
    const Machine driver = machine();
    {
        Region region{driver, 4_MiB};
        driver.fail({.call = Call::populate_host, .kind = StatusKind::out_of_host_memory});
        CHECK(region.prepare(region.address(), true).kind == StatusKind::out_of_host_memory);
        CHECK(!region.ready(region.address(), false));
        driver.fail({.call = Call::pin_host});
        CHECK(!region.prepare(region.address(), true).ok());
        CHECK(region.ready(region.address(), false)); // there, if not pinned
        CHECK(!region.ready(region.address(), true));
        CHECK(region.prepare(region.address(), true).ok());
    }
    CHECK(driver.everything_given_back());
    driver.fail({.call = Call::map_host, .kind = StatusKind::out_of_host_memory});
    CHECK_THROWS_AS((Region{driver, 4_MiB}), OutOfHostMemory);
    CHECK(driver.everything_given_back());
}

TEST_CASE("HostRegion: pages that the driver still holds are not unmapped under it") {
    const Machine driver = machine();
    {
        Region region{driver, 4_MiB};
        CHECK(region.prepare(region.address(), true).ok());
        driver.fail({.call = Call::unpin_host});
    }
    CHECK(driver.violations().empty());
    CHECK(driver.calls(Call::unmap_host) == 0);
    CHECK(driver.pinned_bytes() == 4_MiB);
}

TEST_CASE("HostRegion: on a lost device the pages go all the same") {
    const Machine driver = machine();
    {
        Region region{driver, 4_MiB};
        CHECK(region.prepare(region.address(), true).ok());
        driver.fail({.call = Call::unpin_host, .kind = StatusKind::gone});
    }
    CHECK(driver.calls(Call::unmap_host) == 1);
}

TEST_CASE("HostRegion: several threads, the same cells and others") {
    const Machine driver = machine();
    {
        Region region{driver, 3 * Region::cell_bytes};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (std::uintptr_t at = region.address(); at < region.end(); at += 2_MiB) {
                    CHECK(region.prepare(at, true).ok());
                    CHECK(region.ready(at, true));
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(driver.pinned_bytes() == region.bytes());
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}
