// What backups made side by side share: pages of small ones, and rings.
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

TEST_CASE("HostPart: small parts share mappings that grow with them, large ones have their own") {
    const Setup s;
    std::vector<HostPart> parts;
    for (int i = 0; i < 64; ++i) {
        parts.push_back(s.part(60'000));
        CHECK(parts.back().bytes == 61'440);
        CHECK(s.driver.pinned_bytes() <= 2 * parts.size() * 61'440);
        CHECK(s.budget->taken_bytes() == s.driver.pinned_bytes());
    }
    CHECK(s.driver.outstanding().host_pages <= 8);
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
    for (const HostPart& part : parts) ranges.emplace_back(part.address, part.address + part.bytes);
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i) CHECK(ranges[i - 1].second <= ranges[i].first);
    const std::size_t mappings = s.driver.outstanding().host_pages;
    const HostPart large = s.part(3_MiB);
    CHECK(s.driver.outstanding().host_pages == mappings + 1);
    CHECK(large.bytes == 3_MiB);
    CHECK(large.address % 2_MiB == 0);
    const HostPart pageable = s.part(4096, false); // not among pinned ones
    CHECK(s.driver.outstanding().host_pages == mappings + 2);
    for (std::size_t i = 0; i < parts.size(); i += 2) parts[i] = {};
    for (std::size_t i = 0; i < parts.size(); i += 2) parts[i] = s.part(60'000); // where others were
    CHECK(s.driver.outstanding().host_pages == mappings + 2);
    parts.clear();
    CHECK(s.driver.outstanding().host_pages == 2);
}

TEST_CASE("HostPart: other devices have other mappings") {
    const Setup s;
    const Machine other{HostDriver{64_MiB}};
    const HostPart first = s.part(4096);
    const HostPart second = HostPart::take(s.budget, s.pool, other, 4096, true, {});
    CHECK(first.cells != second.cells);
    CHECK(other.outstanding().host_pages == 1);
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

TEST_CASE("HostPart: what cannot be freed is kept, and retried; no memory is an error that changes nothing") {
    const Setup s;
    HostPart part = s.part(4096);
    s.driver.fail({.call = Call::unmap_host, .lasting = Lasting::onwards});
    part = {};
    CHECK(!s.budget->retry().ok());
    s.driver.heal();
    CHECK(s.budget->retry().ok());
    CHECK(s.driver.everything_given_back());
    s.driver.fail({.call = Call::map_host, .kind = StatusKind::out_of_host_memory});
    CHECK_THROWS_AS((void)s.part(4096), OutOfHostMemory);
    CHECK(s.budget->promised_bytes() + s.budget->taken_bytes() == 0);
}

TEST_CASE("HostPart: threads take and give back at once") {
    const Setup s;
    Threads{4, [&s](std::size_t thread) {
                const auto n = static_cast<unsigned char>(1 + thread);
                for (std::size_t i = 0; i < 100; ++i) {
                    const HostPart part = HostPart::take(s.budget, s.pool, s.driver, 4096 * (1 + i % 7), true, {});
                    CHECK(part.cells->prepare(part.address, true).ok());
                    // NOLINTNEXTLINE(performance-no-int-to-ptr)
                    auto* const bytes = reinterpret_cast<unsigned char*>(part.address);
                    std::memset(bytes, n, part.bytes);
                    CHECK((bytes[0] == n && bytes[part.bytes - 1] == n));
                }
            }};
    CHECK(s.driver.everything_given_back());
    CHECK(s.budget->taken_bytes() == 0);
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

TEST_CASE("Ring: a budget is gone with its last user, though a ring could not be freed") {
    const Machine driver{HostDriver{64_MiB}};
    auto budget = std::make_shared<HostBudget>();
    const std::weak_ptr<HostBudget> seen = budget;
    auto ring = Ring::shared(budget, driver, {8_MiB, 2, 2_MiB});
    ring->prepare(1, 1_MiB);
    driver.fail({.call = Call::unpin_host});
    ring.reset();
    CHECK(driver.pinned_bytes() == 1_MiB);
    budget.reset();
    CHECK(seen.expired());
    CHECK(driver.everything_given_back());
}
} // namespace driver_shared_host_memory_test
