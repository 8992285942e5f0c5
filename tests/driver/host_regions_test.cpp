// Regions are freed by their last owner; if that fails, they are kept and retried.
#include "memsaver/driver/host_memory.hpp"

#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <thread>
#include <vector>

namespace driver_host_regions_test {

using namespace memsaver;
using namespace memsaver::detail;
using Machine = FaultyDriver<HostDriver>;
using Regions = HostRegions;

std::shared_ptr<HostRegion> pinned(const std::shared_ptr<Regions>& regions, const Machine& driver) {
    auto region = regions->make(driver, 2_MiB);
    REQUIRE(region->prepare(region->address(), true).ok());
    return region;
}

TEST_CASE("HostRegions: a region lives as long as somebody shares it") {
    const Machine driver{HostDriver{64_MiB}};
    auto regions = std::make_shared<Regions>();
    auto region = pinned(regions, driver);
    const auto view = region;
    region.reset();
    CHECK(regions->retry().ok());
    CHECK(driver.pinned_bytes() == 2_MiB);
    regions.reset(); // it keeps its source alive
    CHECK(driver.pinned_bytes() == 2_MiB);
}

TEST_CASE("HostRegions: what cannot be given back is kept until it can") {
    const Machine driver{HostDriver{64_MiB}};
    for (const Call call : {Call::unpin_host, Call::unmap_host}) {
        const auto regions = std::make_shared<Regions>();
        auto one = pinned(regions, driver);
        auto two = pinned(regions, driver);
        auto used = pinned(regions, driver);
        driver.fail({.call = call, .lasting = Lasting::onwards});
        one.reset();
        two.reset();
        CHECK(driver.outstanding().host_pages == 3);
        CHECK(regions->retry().code == Failure::injected_code);
        driver.heal();
        driver.fail({.call = call});
        CHECK(!regions->retry().ok()); // one of them
        CHECK(driver.outstanding().host_pages == 2);
        CHECK(regions->retry().ok());
        CHECK(driver.outstanding().host_pages == 1);
        CHECK(used->ready(used->address(), true));
        used.reset();
        CHECK(driver.everything_given_back());
    }
    CHECK(driver.violations().empty());
}

TEST_CASE("HostRegions: the last chance is its own end") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const auto regions = std::make_shared<Regions>();
        auto region = pinned(regions, driver);
        driver.fail({.call = Call::unpin_host});
        region.reset();
        CHECK(driver.pinned_bytes() == 2_MiB);
    }
    CHECK(driver.everything_given_back());
}

TEST_CASE("HostRegions: several threads") {
    const Machine driver{HostDriver{64_MiB}};
    const auto regions = std::make_shared<Regions>();
    driver.fail({.call = Call::unpin_host, .nth = 20});
    driver.fail({.call = Call::unmap_host, .nth = 30});
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int n = 0; n < 20; ++n) {
                pinned(regions, driver).reset();
                (void)regions->retry();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(regions->retry().ok());
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}

} // namespace driver_host_regions_test
