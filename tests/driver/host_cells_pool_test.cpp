// Mappings are freed by their last owner; if that fails, they are kept and retried.
#include "support/machines.hpp"

namespace driver_host_cells_pool_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;
using Mappings = HostCellsPool;

std::shared_ptr<HostCells> pinned(const std::shared_ptr<Mappings>& mappings, const Machine& driver) {
    auto mapping = mappings->make(driver, 2_MiB);
    REQUIRE(mapping->prepare(mapping->address(), true).ok());
    return mapping;
}

TEST_CASE("HostCellsPool: a mapping lives as long as somebody shares it") {
    const Machine driver{HostDriver{64_MiB}};
    auto mappings = std::make_shared<Mappings>();
    auto mapping = pinned(mappings, driver);
    const auto view = mapping;
    mapping.reset();
    CHECK(mappings->retry().ok());
    CHECK(driver.pinned_bytes() == 2_MiB);
    mappings.reset(); // it keeps its source alive
    CHECK(driver.pinned_bytes() == 2_MiB);
}

TEST_CASE("HostCellsPool: memory that cannot be released is kept until it can be") {
    const Machine driver{HostDriver{64_MiB}};
    for (const Call call : {Call::unpin_host, Call::unmap_host}) {
        const auto mappings = std::make_shared<Mappings>();
        auto one = pinned(mappings, driver);
        auto two = pinned(mappings, driver);
        auto used = pinned(mappings, driver);
        driver.fail({.call = call, .lasting = Lasting::onwards});
        one.reset();
        two.reset();
        CHECK(driver.outstanding().host_pages == 3);
        CHECK(mappings->retry().code == Failure::injected_code);
        driver.heal();
        driver.fail({.call = call});
        CHECK(!mappings->retry().ok()); // one of them
        CHECK(driver.outstanding().host_pages == 2);
        CHECK(mappings->retry().ok());
        CHECK(driver.outstanding().host_pages == 1);
        CHECK(used->ready(used->address(), true));
        used.reset();
        CHECK(driver.everything_given_back());
    }
    CHECK(driver.violations().empty());
}

TEST_CASE("HostCellsPool: its destructor retries a last time") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const auto mappings = std::make_shared<Mappings>();
        auto mapping = pinned(mappings, driver);
        driver.fail({.call = Call::unpin_host});
        mapping.reset();
        CHECK(driver.pinned_bytes() == 2_MiB);
    }
    CHECK(driver.everything_given_back());
}

TEST_CASE("HostCellsPool: several threads") {
    const Machine driver{HostDriver{64_MiB}};
    const auto mappings = std::make_shared<Mappings>();
    driver.fail({.call = Call::unpin_host, .nth = 20});
    driver.fail({.call = Call::unmap_host, .nth = 30});
    Threads{4, [&](std::size_t) {
                for (int n = 0; n < 20; ++n) {
                    pinned(mappings, driver).reset();
                    (void)mappings->retry();
                }
            }};
    CHECK(mappings->retry().ok());
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}
} // namespace driver_host_cells_pool_test
