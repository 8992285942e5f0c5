// An extent's state is exactly what it owns, after every successful and every failed call.
#include "memsaver/arena/pages.hpp"
#include "memsaver/driver/owned.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"
#include "support/reserved.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace arena_extent_test {

using namespace memsaver;
using namespace memsaver::detail;

using Machine = FaultyDriver<HostDriver>;
static_assert(!std::is_copy_constructible_v<Extent>);
static_assert(std::is_nothrow_move_constructible_v<Extent>, "lists of extents move them");
static_assert(std::is_nothrow_move_assignable_v<Extent>);

struct Fixture {
    [[nodiscard]] Extent paused() const { return Extent{addresses.get().address, 4_MiB}; }

    Machine driver{HostDriver{8_MiB}};
    Reservation addresses = test::reserved(driver, 4_MiB, 2_MiB);
};

TEST_CASE("Extent: paused, held, active and back") {
    const Fixture fixture;
    Extent extent = fixture.paused();
    CHECK(extent.state() == ExtentState::paused);
    CHECK(extent.physical_bytes() == 0);
    CHECK(extent.bytes() == 4_MiB);
    CHECK(extent.end() == extent.address() + 4_MiB);
    REQUIRE(extent.create(fixture.driver).ok());
    CHECK(extent.state() == ExtentState::held);
    CHECK(extent.physical_bytes() == 4_MiB);
    REQUIRE(extent.map(fixture.driver).ok());
    CHECK(extent.state() == ExtentState::active);
    CHECK(fixture.driver.mapped_bytes() == 4_MiB);
    REQUIRE(extent.unmap().ok());
    CHECK(extent.state() == ExtentState::held);
    CHECK(extent.physical_bytes() == 4_MiB);
    REQUIRE(extent.release().ok());
    CHECK(extent.state() == ExtentState::paused);
    CHECK(extent.physical_bytes() == 0);
    CHECK(fixture.driver.handle_bytes() == 0);
    REQUIRE(extent.create(fixture.driver).ok()); // and again
    REQUIRE(extent.map(fixture.driver).ok());
}

TEST_CASE("Extent: what fails leaves the state as it was") {
    const Fixture fixture;
    Extent extent = fixture.paused();
    const auto fail = [&](Call call) { fixture.driver.fail({.call = call}); };
    fail(Call::create);
    CHECK_FALSE(extent.create(fixture.driver).ok());
    CHECK(extent.state() == ExtentState::paused);
    REQUIRE(extent.create(fixture.driver).ok());
    fail(Call::map);
    CHECK_FALSE(extent.map(fixture.driver).ok());
    CHECK(extent.state() == ExtentState::held);
    fail(Call::allow_access);
    CHECK_FALSE(extent.map(fixture.driver).ok());
    CHECK(extent.unmap().ok()); // undoes the part that was done
    CHECK(extent.state() == ExtentState::held);
    REQUIRE(extent.map(fixture.driver).ok());
    fail(Call::unmap);
    CHECK_FALSE(extent.unmap().ok());
    CHECK(extent.state() == ExtentState::active);
    REQUIRE(extent.unmap().ok());
    fail(Call::release);
    CHECK_FALSE(extent.release().ok());
    CHECK(extent.state() == ExtentState::held);
    CHECK(extent.physical_bytes() == fixture.driver.handle_bytes());
    CHECK(extent.release().ok());
    CHECK(extent.state() == ExtentState::paused);
}

TEST_CASE("Extent: dies in the right order, wherever it was moved") {
    Fixture fixture;
    {
        std::vector<Extent> extents;
        for (std::size_t i = 0; i < 2; ++i) {
            Extent extent{fixture.addresses.get().address + i * 2_MiB, 2_MiB};
            REQUIRE(extent.create(fixture.driver).ok());
            REQUIRE(extent.map(fixture.driver).ok());
            extents.push_back(std::move(extent));
        }
        extents.erase(extents.begin()); // moves the second over the first
        CHECK(extents.front().address() == fixture.addresses.get().address + 2_MiB);
        CHECK(extents.front().state() == ExtentState::active);
        CHECK(fixture.driver.mapped_bytes() == 2_MiB);
        CHECK(fixture.driver.handle_bytes() == 2_MiB);
        reinterpret_cast<unsigned char*>(extents.front().address())[0] = 1;
    }
    CHECK(fixture.addresses.close().ok());
    CHECK(fixture.driver.everything_given_back());
    CHECK(fixture.driver.violations().empty());
}

TEST_CASE("Extent: one that is moved over an active one gives that one's pages back") {
    Fixture fixture;
    Extent extent = fixture.paused();
    REQUIRE(extent.create(fixture.driver).ok());
    REQUIRE(extent.map(fixture.driver).ok());
    std::vector<Call> calls;
    fixture.driver.on_call([&](const CallRecord& call) { calls.push_back(call.call); });
    extent = fixture.paused();
    fixture.driver.on_call({});
    CHECK(fixture.driver.handle_bytes() == 0);
    CHECK(fixture.driver.mapped_bytes() == 0);
    CHECK(fixture.driver.violations().empty());
    CHECK(calls.size() == 2);
}

} // namespace arena_extent_test
