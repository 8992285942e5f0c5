// Host memory of backups: pages by cell, and what backups made side by side share: pages of small ones, and rings.
#include "support/machines.hpp"

namespace driver_shared_host_memory_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;

struct Setup {
    HostPart part(std::size_t bytes, bool pinned = true) const {
        HostPart taken = HostPart::take(budget, pool, driver, bytes, pinned, {});
        REQUIRE(taken.cells->prepare(taken.address, pinned).ok());
        return taken;
    }
    Machine driver{HostDriver{64_MiB}};
    std::shared_ptr<HostBudget> budget = std::make_shared<HostBudget>();
    std::shared_ptr<HostCellsPool> pool = std::make_shared<HostCellsPool>();
};

TEST_CASE("HostCells: can be populated as a whole without pinning") {
    const Machine driver{HostDriver{64_MiB}};
    HostCells mapping{driver, 2 * HostCells::cell_bytes + 1};
    driver.fail({.call = Call::populate_host, .nth = 2, .kind = StatusKind::out_of_host_memory});
    CHECK(mapping.take().kind == StatusKind::out_of_host_memory);
    CHECK(mapping.take().ok());
    for (std::uintptr_t at = mapping.address(); at < mapping.end(); at += 2_MiB) CHECK(mapping.ready(at, false));
    CHECK(driver.calls(Call::pin_host) == 0);
}

TEST_CASE("HostCells: on a lost device the pages are freed all the same") {
    const Machine driver{HostDriver{64_MiB}};
    {
        HostCells mapping{driver, 4_MiB};
        CHECK(mapping.prepare(mapping.address(), true).ok());
        driver.fail({.call = Call::unpin_host, .kind = StatusKind::gone});
    }
    CHECK(driver.calls(Call::unmap_host) == 1);
}

TEST_CASE("HostPart: pages that copies may still reach are given to nobody else") {
    const Setup s;
    std::vector<HostPart> stay;
    for (int i = 0; i < 3; ++i) stay.push_back(s.part(4096)); // the last in a mapping of two pages
    std::uintptr_t address = 0;
    {
        HostPart one = s.part(4096);
        CHECK(one.cells == stay.back().cells);
        address = one.address;
        one.cells->unsettle();
    }
    for (int i = 0; i < 8; ++i) CHECK(s.part(4096).address != address);
}

TEST_CASE("Ring: shared by those with the same budget, device and size of buffers, as wide as the widest") {
    const Setup s;
    const Machine other{HostDriver{64_MiB}};
    const auto ring = Ring::shared(s.budget, s.driver, {8_MiB, 1, 2_MiB});
    CHECK(ring->pairs() == 1);
    CHECK(Ring::shared(s.budget, s.driver, {8_MiB, 2, 2_MiB}) == ring);
    CHECK(ring->pairs() == 2);
    CHECK(Ring::shared(s.budget, s.driver, {64_MiB, 1, 32_MiB}) != ring);
    CHECK(Ring::shared(s.budget, other, {8_MiB, 1, 2_MiB}) != ring);
    CHECK(Ring::shared(std::make_shared<HostBudget>(), s.driver, {8_MiB, 1, 2_MiB}) != ring);
}

TEST_CASE("Ring: trim frees what nobody uses, the last user the rest; what the driver keeps is retried") {
    const Setup s;
    auto ring = Ring::shared(s.budget, s.driver, {8_MiB, 2, 2_MiB});
    ring->prepare(100, 1_MiB);
    CHECK(s.budget->taken_bytes() == 4_MiB);
    {
        Ring::Loan loan{*ring};
        (void)loan.buffer(0, 1_MiB);
        CHECK(s.budget->trim().ok());
        CHECK(s.driver.pinned_bytes() == 2_MiB); // its pair
        CHECK(s.budget->taken_bytes() == 2_MiB);
    }
    s.driver.fail({.call = Call::unpin_host, .lasting = Lasting::onwards});
    CHECK(!s.budget->trim().ok());
    ring.reset();
    CHECK(s.driver.pinned_bytes() == 2_MiB);
    s.driver.heal();
    CHECK(s.budget->trim().ok());
    CHECK(s.driver.everything_given_back());
    CHECK(s.budget->taken_bytes() == 0);
}
} // namespace driver_shared_host_memory_test
