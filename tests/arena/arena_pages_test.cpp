// The pages of an arena: books that are always true, and nothing lost however growing fails.
#include "memsaver/arena/arena_pages.hpp"
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace arena_arena_pages_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;
using Pages = ArenaPages<Machine>;

struct Fixture {
    explicit Fixture(ArenaOptions options = {.capacity = 64_MiB}) : pages{driver, "tag", std::move(options)} {}

    /// Grows by `bytes`; what was offered is added to `open`.
    Status grow(std::size_t bytes, std::size_t alignment = 1) {
        const Range range = pages.take_addresses(bytes, bytes, alignment);
        return pages.grow_into(range, [&](Range offered) { open.push_back(offered); });
    }
    void check_books() const {
        CHECK(pages.physical_bytes() == driver.handle_bytes());
        CHECK(driver.violations().empty());
    }

    Machine driver{HostDriver{128_MiB}};
    Pages pages;
    std::vector<Range> open;
};

TEST_CASE("ArenaPages: the capacity is a whole number of pages, and twice the device's memory by default") {
    const Fixture rounded{ArenaOptions{.capacity = 3_MiB}};
    CHECK(rounded.pages.addresses().bytes == 4_MiB);
    const Fixture by_default{ArenaOptions{}};
    CHECK(by_default.pages.addresses().bytes == 256_MiB);
    CHECK(by_default.pages.physical_bytes() == 0);
    CHECK_THROWS_AS(Fixture{ArenaOptions{.capacity = ~std::size_t{0}}}, Misuse);
}

TEST_CASE("ArenaPages: grows into addresses that it takes, and gives all back when it closes") {
    Fixture f;
    REQUIRE(f.grow(4_MiB).ok());
    REQUIRE(f.grow(2_MiB, 8_MiB).ok());
    REQUIRE(f.open.size() == 2);
    CHECK(f.open[0] == Range{f.pages.addresses().address, 4_MiB});
    CHECK(f.open[1].address % 8_MiB == 0);
    CHECK(f.pages.physical_bytes() == 6_MiB);
    f.check_books();
    CHECK(f.pages.reserved());
    CHECK(f.pages.close().ok());
    CHECK_FALSE(f.pages.reserved());
    CHECK(f.pages.physical_bytes() == 0);
    CHECK(f.driver.everything_given_back());
    CHECK(f.pages.close().ok());
}

TEST_CASE("ArenaPages: no addresses left is misuse that names the tag and its capacity") {
    Fixture f{ArenaOptions{.capacity = 4_MiB}};
    CHECK(f.pages.take_addresses(8_MiB, 2_MiB, 1).bytes == 2_MiB); // what is needed, where no more is to be had
    try {
        (void)f.pages.take_addresses(4_MiB, 4_MiB, 1);
        FAIL("nothing was thrown");
    } catch (const Misuse& error) {
        CHECK(std::string{error.what()} == "tag \"tag\": no room for 4.00 MiB more in its capacity of 4.00 MiB");
    }
}

TEST_CASE("ArenaPages: the margin stays free") {
    Fixture f{ArenaOptions{.capacity = 256_MiB, .margin = 120_MiB}};
    CHECK(f.grow(10_MiB).kind == StatusKind::out_of_memory);
    CHECK(f.pages.physical_bytes() == 0);
    CHECK(f.grow(8_MiB).ok());
    CHECK(f.grow(2_MiB).kind == StatusKind::out_of_memory);
    f.check_books();
}

TEST_CASE("ArenaPages: a margin that no memory leaves room for") {
    Fixture f{ArenaOptions{.capacity = 256_MiB, .margin = ~std::size_t{0}}};
    CHECK(f.grow(2_MiB).kind == StatusKind::out_of_memory);
    CHECK(f.pages.physical_bytes() == 0);
    f.check_books();
}

TEST_CASE("ArenaPages: whichever call fails while it grows, the books are true and the addresses come back") {
    const std::uint64_t points = sweep(
        {}, [] { return Fixture{}; }, [](Fixture& f) { check(f.grow(4_MiB), "grow"); },
        [](Fixture& f, const SweepPoint& point) {
            CAPTURE(point.text());
            CHECK(f.open.size() == (point.error ? 0 : 1));
            f.check_books();
            REQUIRE(f.pages.retry_held().ok());
            if (point.error) {
                CHECK(f.pages.physical_bytes() == 0);
                CHECK(f.pages.take_addresses(64_MiB, 64_MiB, 1).bytes == 64_MiB);
            }
            CHECK(f.pages.close().ok());
            CHECK(f.driver.everything_given_back());
        });
    CHECK(points == 3); // create, map, allow access
}

TEST_CASE("ArenaPages: what cannot be given back is held, told, counted and tried again") {
    std::vector<Event> events;
    Fixture f{ArenaOptions{.capacity = 4_MiB, .events = [&](const Event& event) { events.push_back(event); }}};
    f.driver.fail({.call = Call::allow_access});
    SUBCASE("still mapped") { f.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards}); }
    SUBCASE("not released") { f.driver.fail({.call = Call::release, .lasting = Lasting::onwards}); }
    CHECK_FALSE(f.grow(4_MiB).ok());
    CHECK(f.open.empty());
    CHECK(f.pages.held.size() == 1);
    CHECK(f.pages.physical_bytes() == 4_MiB);
    f.check_books();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == EventKind::ignored);
    CHECK(events[0].tag == "tag");
    CHECK_THROWS_AS((void)f.pages.take_addresses(2_MiB, 2_MiB, 1), Misuse); // pages may still be there
    CHECK_FALSE(f.pages.retry_held().ok());
    CHECK(f.pages.held.size() == 1);
    f.driver.heal();
    CHECK(f.pages.retry_held().ok());
    CHECK(f.pages.held.empty());
    CHECK(f.pages.physical_bytes() == 0);
    CHECK(f.grow(4_MiB).ok());
    f.check_books();
}

TEST_CASE("ArenaPages: addresses of paused ranges that nobody needs come back, the others stay taken") {
    Fixture f{ArenaOptions{.capacity = 8_MiB}};
    const Address at = f.pages.take_addresses(8_MiB, 8_MiB, 1).address;
    f.pages.paused.push_back({{{at + 4_MiB, 4_MiB}}, nullptr});
    f.pages.paused.push_back({{{at, 2_MiB}, {at + 2_MiB, 2_MiB}}, nullptr});
    CHECK(f.pages.paused_ranges() == std::vector<Range>{{at, 2_MiB}, {at + 2_MiB, 2_MiB}, {at + 4_MiB, 4_MiB}});
    f.pages.forget_paused({at + 2_MiB, 6_MiB}, [] { return false; });
    CHECK(f.pages.paused_ranges().size() == 3); // somebody uses it after all
    f.pages.forget_paused({at + 2_MiB, 6_MiB}, [] { return true; });
    CHECK(f.pages.paused_ranges() == std::vector<Range>{{at, 2_MiB}});
    CHECK(f.pages.paused.size() == 1);
    CHECK(f.pages.take_addresses(6_MiB, 6_MiB, 1) == Range{at + 2_MiB, 6_MiB});
}

TEST_CASE("ArenaPages: closing goes on where it stopped, and a lost device is no failure") {
    Fixture f;
    REQUIRE(f.grow(2_MiB).ok());
    REQUIRE(f.grow(2_MiB).ok());
    SUBCASE("unmap") { f.driver.fail({.call = Call::unmap}); }
    SUBCASE("release") { f.driver.fail({.call = Call::release}); }
    SUBCASE("unreserve") { f.driver.fail({.call = Call::unreserve}); }
    CHECK_FALSE(f.pages.close().ok());
    f.check_books();
    CHECK(f.pages.close().ok());
    CHECK(f.driver.everything_given_back());
}

TEST_CASE("ArenaPages: closing on a lost device answers ok") {
    Fixture f;
    REQUIRE(f.grow(2_MiB).ok());
    f.driver.inner().lose();
    CHECK(f.pages.close().ok());
}

} // namespace arena_arena_pages_test
