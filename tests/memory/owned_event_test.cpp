// An event is closed once, by its last owner.
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/memory/owned_event.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

namespace memory_owned_event_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;
using Owned = OwnedEvent<Machine>;
static_assert(!std::is_copy_constructible_v<Owned>);
static_assert(std::is_nothrow_move_constructible_v<Owned> && std::is_nothrow_move_assignable_v<Owned>);

TEST_CASE("OwnedEvent: opens, moves, and is closed once") {
    const Machine driver{HostDriver{64_MiB}};
    {
        Owned one;
        CHECK(one.get() == EventRef{});
        REQUIRE(one.open(driver).ok());
        const EventRef native = one.get();
        CHECK(native != EventRef{});
        Owned two{std::move(one)};
        Owned three;
        REQUIRE(three.open(driver).ok());
        three = std::move(two);
        CHECK(three.get() == native);
        CHECK(driver.outstanding().events == 1);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.calls(Call::close_event) == 2);
    CHECK(driver.violations().empty());
}

TEST_CASE("OwnedEvent: a failing open owns nothing") {
    const Machine driver{HostDriver{64_MiB}};
    {
        Owned owned;
        driver.fail({.call = Call::open_event});
        CHECK_FALSE(owned.open(driver).ok());
        CHECK(owned.get() == EventRef{});
    }
    CHECK(driver.calls(Call::close_event) == 0);
}

} // namespace memory_owned_event_test
