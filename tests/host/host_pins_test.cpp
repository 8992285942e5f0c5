#include "host_support.hpp"
#include "memsaver/host/host_memory.hpp"

#include <limits>

namespace host_host_pins_test {
using namespace host_test;

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

const void* at(std::size_t address) { return reinterpret_cast<const void*>(address); }

TEST_CASE("pins: each byte at most once") {
    HostPins pins{unlimited};
    CHECK(pins.pin(at(1000), 100).ok());
    CHECK_FALSE(pins.pin(at(1000), 100).ok());
    CHECK_FALSE(pins.pin(at(1099), 1).ok());
    CHECK_FALSE(pins.pin(at(999), 2).ok());
    CHECK_FALSE(pins.pin(at(900), 1000).ok());
    CHECK_FALSE(pins.pin(at(1010), 10).ok());
    CHECK(pins.pinned_bytes() == 100);
    CHECK(pins.pin(at(1100), 50).ok());
    CHECK(pins.pin(at(950), 50).ok());
    CHECK(pins.pinned_bytes() == 200);
    CHECK_FALSE(pins.pin(at(5000), 0).ok());
    CHECK_FALSE(pins.pin(at(5000), unlimited - 4000).ok()); // past the last address
    CHECK_FALSE(pins.unpin(at(1001)).ok());
}

TEST_CASE("pins: a copy's host bytes lie in one pin, or in none") {
    HostPins pins{unlimited};
    CHECK(pins.whole(at(0), unlimited));
    REQUIRE(pins.pin(at(1000), 100).ok());
    REQUIRE(pins.pin(at(1100), 100).ok());
    CHECK(pins.whole(at(1000), 100));
    CHECK(pins.whole(at(1010), 10));
    CHECK(pins.whole(at(1100), 100));
    CHECK(pins.whole(at(900), 100));
    CHECK(pins.whole(at(1200), 100));
    CHECK_FALSE(pins.whole(at(1050), 100)); // two pins
    CHECK_FALSE(pins.whole(at(1000), 200));
    CHECK_FALSE(pins.whole(at(999), 2)); // half pinned
    CHECK_FALSE(pins.whole(at(1199), 2));
    CHECK_FALSE(pins.whole(at(900), 1000));
    REQUIRE(pins.unpin(at(1000)).ok());
    CHECK(pins.whole(at(1000), 100));
    CHECK_FALSE(pins.whole(at(1050), 100));
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

TEST_CASE("pins: a lost machine returns gone") {
    const HostDriver driver = machine();
    char host[4] = {};
    REQUIRE(driver.pin_host(host, 4).ok());
    driver.lose();
    CHECK(driver.unpin_host(host).kind == StatusKind::gone);
    CHECK(driver.pin_host(host, 4).kind == StatusKind::gone);
}
} // namespace host_host_pins_test
