// Promised but untouched memory is subtracted from the system's available memory.
#include "support/machines.hpp"

namespace driver_host_budget_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;

std::size_t available(const Machine& driver) {
    std::size_t bytes = 0;
    REQUIRE(driver.host_available(bytes).ok());
    return bytes;
}

TEST_CASE("HostBudget: bytes that are promised are not promised again") {
    const Machine driver{HostDriver{64_MiB}};
    const auto budget = std::make_shared<HostBudget>();
    const std::size_t most = available(driver) / 4 * 3; // other processes allocate and free
    {
        const auto first = HostBudget::take(budget, driver, most);
        CHECK(budget->promised_bytes() == most);
        try {
            (void)HostBudget::take(budget, driver, most);
            FAIL("nothing was thrown");
        } catch (const OutOfHostMemory& error) {
            CHECK(std::string{error.what()}.find(format_bytes(most) + " of other backups") != std::string::npos);
        }
        CHECK(budget->promised_bytes() == most);
        CHECK_NOTHROW((void)HostBudget::take(std::make_shared<HostBudget>(), driver, most)); // from another budget
        CHECK_NOTHROW((void)HostBudget::take(nullptr, driver, most));
    }
    CHECK(budget->promised_bytes() == 0);
    CHECK_NOTHROW((void)HostBudget::take(budget, driver, most));
}

TEST_CASE("HostBudget: more than is available, and a system that does not say how much there is") {
    const Machine driver{HostDriver{64_MiB}};
    const auto budget = std::make_shared<HostBudget>();
    CHECK_THROWS_AS((void)HostBudget::take(budget, driver, std::size_t{1} << 60U), OutOfHostMemory);
    CHECK_THROWS_AS((void)HostBudget::take(nullptr, driver, std::size_t{1} << 60U), OutOfHostMemory);
    driver.fail({.call = Call::host_available});
    CHECK_THROWS_AS((void)HostBudget::take(budget, driver, 1_MiB), Error);
    CHECK(budget->promised_bytes() == 0);
}

TEST_CASE("HostBudget: a promise shrinks as pages are touched, and moves") {
    const Machine driver{HostDriver{64_MiB}};
    const auto budget = std::make_shared<HostBudget>();
    auto first = HostBudget::take(budget, driver, 4_MiB);
    first.touched(1_MiB);
    CHECK(budget->promised_bytes() == 3_MiB);
    auto second = std::move(first);
    first.touched(1_MiB); // NOLINT(bugprone-use-after-move): it has nothing left
    CHECK(budget->promised_bytes() == 3_MiB);
    second.touched(100_MiB); // limited to what it has
    CHECK(budget->promised_bytes() == 0);
    second = HostBudget::take(budget, driver, 2_MiB);
    second = HostBudget::take(budget, driver, 1_MiB);
    CHECK(budget->promised_bytes() == 1_MiB);
}

TEST_CASE("HostBudget: a region's promise ends cell by cell, and with the region") {
    const Machine driver{HostDriver{64_MiB, {.pin_limit = 1_GiB}}};
    const auto budget = std::make_shared<HostBudget>();
    constexpr std::size_t bytes = 2 * HostCells::cell_bytes;
    {
        HostCells region{driver, bytes, HostBudget::take(budget, driver, bytes)};
        CHECK(budget->promised_bytes() == bytes);
        CHECK(region.prepare(region.address(), false).ok());
        const std::size_t left = budget->promised_bytes();
        CHECK(left < bytes);
        CHECK(region.prepare(region.address(), true).ok()); // its pages have been allocated before
        CHECK(budget->promised_bytes() == left);
        driver.fail({.call = Call::populate_host});
        CHECK_FALSE(region.prepare(region.end() - 1, false).ok());
        CHECK(budget->promised_bytes() == left);
    }
    CHECK(budget->promised_bytes() == 0);
}

TEST_CASE("HostBudget: threads together are never promised more than one after the other") {
    const Machine driver{HostDriver{64_MiB}};
    const auto budget = std::make_shared<HostBudget>();
    const std::size_t each = available(driver) / 16 * 3;
    std::vector<HostBudget::Promise> kept(16);
    Threads{kept.size(), [&](std::size_t i) {
                try {
                    kept[i] = HostBudget::take(budget, driver, each);
                } catch (const OutOfHostMemory&) { // as most must
                }
            }};
    CHECK(budget->promised_bytes() % each == 0);
    CHECK(budget->promised_bytes() / each >= 1);
    CHECK(budget->promised_bytes() / each <= 8); // 16/3, and memory freed by other processes
    kept.clear();
    CHECK(budget->promised_bytes() == 0);
}
} // namespace driver_host_budget_test
