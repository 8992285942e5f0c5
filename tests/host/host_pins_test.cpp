#include "host_support.hpp"
#include "memsaver/host/host_memory.hpp"

#include <limits>

namespace host_host_pins_test {
using namespace host_test;

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

const void* at(std::size_t address) { return reinterpret_cast<const void*>(address); }

TEST_CASE("pins: each byte at most once; a copy's host bytes lie in one pin, or in none") {
    HostPins pins{unlimited};
    const auto pin = [&](std::size_t begin, std::size_t bytes) { return pins.pin(at(begin), bytes).ok(); };
    const auto whole = [&](std::size_t begin, std::size_t bytes) { return pins.whole(at(begin), bytes); };
    using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;
    CHECK(whole(0, unlimited));
    CHECK(pin(1000, 100));
    for (const auto& [begin, bytes] : Ranges{{1000, 100}, {1099, 1}, {999, 2}, {900, 1000}, {1010, 10}, {5000, 0}})
        CHECK_FALSE(pin(begin, bytes));
    CHECK_FALSE(pin(5000, unlimited - 4000)); // past the last address
    CHECK(pins.pinned_bytes() == 100);
    CHECK(pin(1100, 100));
    CHECK(pin(950, 50));
    CHECK(pins.pinned_bytes() == 250);
    for (const auto& [begin, bytes] : Ranges{{1000, 100}, {1010, 10}, {1100, 100}, {850, 100}, {1200, 100}})
        CHECK(whole(begin, bytes));
    for (const auto& [begin, bytes] : Ranges{{1050, 100}, {1000, 200}, {949, 2}, {1199, 2}, {900, 1000}})
        CHECK_FALSE(whole(begin, bytes)); // two pins, or half pinned
    CHECK_FALSE(pins.unpin(at(1001)).ok());
    REQUIRE(pins.unpin(at(1000)).ok());
    CHECK(whole(1000, 100));
    CHECK_FALSE(whole(1050, 100));
}

TEST_CASE("pins: a HostDriver keeps to them, and shares them among its copies") {
    HostDriverOptions options;
    options.pin_limit = 4_MiB;
    const HostDriver driver = machine(options);
    const HostDriver copy = driver; // NOLINT(performance-unnecessary-copy-initialization): it shares the pins
    Mapped a{driver};
    void* pages = nullptr;
    REQUIRE(driver.map_host(6_MiB, pages).ok());
    auto* const host = static_cast<unsigned char*>(pages);
    REQUIRE(driver.populate_host(host, 6_MiB).ok());
    CHECK(driver.pin_host(host, 6_MiB).kind == StatusKind::out_of_host_memory);
    REQUIRE(driver.pin_host(host, 2_MiB).ok());
    REQUIRE(driver.pin_host(host + 2_MiB, 2_MiB).ok());
    CHECK(copy.pin_host(host + 4_MiB, 2_MiB).kind == StatusKind::out_of_host_memory);
    CHECK_FALSE(copy.pin_host(host, 2_MiB).ok());
    CHECK(copy.counts().pinned_bytes == 4_MiB);

    std::memset(bytes_at(a.address), 7, page);
    CHECK(driver.copy_to_host(host + 2_MiB - page, a.address, page, {}).ok());
    CHECK_FALSE(driver.copy_to_host(host + 2_MiB - 1, a.address, 2, {}).ok());
    CHECK_FALSE(driver.copy_to_device(a.address, host + 4_MiB - 1, 2, {}).ok());
    CHECK(driver.drain().ok());
    CHECK(host[2_MiB - page - 1] == 0);
    CHECK(host[2_MiB - page] == 7);
    CHECK(host[2_MiB - 1] == 7);
    CHECK(host[2_MiB] == 0);

    CHECK(copy.unpin_host(host + 2_MiB).ok());
    CHECK_FALSE(driver.unpin_host(host + 2_MiB).ok());
    CHECK(copy.pin_host(host + 4_MiB, 2_MiB).ok());
    CHECK(copy.unpin_host(host + 4_MiB).ok());
    CHECK(driver.unpin_host(host).ok());
    CHECK(driver.unmap_host(pages, 6_MiB).ok());
    a.give_back();
    CHECK(driver.counts() == HostCounts{});
}
} // namespace host_host_pins_test
