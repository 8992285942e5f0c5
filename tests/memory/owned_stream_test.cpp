// A stream is closed once, by its last owner.
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/memory/owned_stream.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

namespace memory_owned_stream_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;
using Owned = OwnedStream<Machine>;
static_assert(!std::is_copy_constructible_v<Owned>);
static_assert(std::is_nothrow_move_constructible_v<Owned> && std::is_nothrow_move_assignable_v<Owned>);

TEST_CASE("OwnedStream: opens, moves, and is closed once") {
    const Machine driver{HostDriver{64_MiB}};
    {
        Owned one;
        CHECK(one.get() == StreamRef{});
        REQUIRE(one.open(driver).ok());
        const StreamRef native = one.get();
        CHECK(native != StreamRef{});
        Owned two{std::move(one)};
        Owned three;
        REQUIRE(three.open(driver).ok());
        three = std::move(two);
        CHECK(three.get() == native);
        CHECK(driver.outstanding().streams == 1);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.calls(Call::close_stream) == 2);
    CHECK(driver.violations().empty());
}

TEST_CASE("OwnedStream: a failing open owns nothing") {
    const Machine driver{HostDriver{64_MiB}};
    {
        Owned owned;
        driver.fail({.call = Call::open_stream});
        CHECK_FALSE(owned.open(driver).ok());
        CHECK(owned.get() == StreamRef{});
    }
    CHECK(driver.calls(Call::close_stream) == 0);
}

TEST_CASE("OwnedStream: says whether it owns one, and closes it without waiting for its work") {
    const Machine driver{HostDriver{64_MiB}};
    bool done = false;
    {
        OwnedStream<Machine> stream;
        CHECK_FALSE(stream.owns());
        REQUIRE(stream.open(driver).ok());
        CHECK(stream.owns());
        REQUIRE(driver.inner().hold(stream.get()).ok());
        REQUIRE(driver.inner().enqueue(stream.get(), [&] { done = true; }).ok());
    }
    REQUIRE(driver.drain().ok()); // its work still runs
    CHECK(done);
}

} // namespace memory_owned_stream_test
