// A mapping is owned from the moment that pages are in sight, also where access to them was refused.
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/memory/mapping.hpp"
#include "memsaver/memory/physical_block.hpp"
#include "memsaver/memory/reservation.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

namespace memory_mapping_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;
static_assert(!std::is_copy_constructible_v<Mapping<Machine>>);
static_assert(std::is_nothrow_move_constructible_v<Mapping<Machine>>);

struct Fixture {
    Fixture() { REQUIRE(block.create(driver, 2_MiB).ok()); }
    Status map(Mapping<Machine>& mapping) { return mapping.map(driver, addresses.address(), 2_MiB, block.handle()); }

    Machine driver{HostDriver{64_MiB}};
    Reservation<Machine> addresses{driver, 2_MiB, 2_MiB};
    PhysicalBlock<Machine> block;
};

TEST_CASE("Mapping: bytes can be used while it lives") {
    Fixture fixture;
    {
        Mapping<Machine> mapping;
        CHECK_FALSE(mapping.owns());
        CHECK(mapping.unmap().ok());
        REQUIRE(fixture.map(mapping).ok());
        CHECK(mapping.owns());
        auto* bytes = reinterpret_cast<unsigned char*>(fixture.addresses.address());
        bytes[2_MiB - 1] = 7;
        CHECK(bytes[2_MiB - 1] == 7);
        Mapping<Machine> other{std::move(mapping)};
        CHECK(other.owns());
        CHECK(fixture.driver.mapped_bytes() == 2_MiB);
    }
    CHECK(fixture.driver.mapped_bytes() == 0);
    CHECK(fixture.driver.violations().empty());
}

TEST_CASE("Mapping: a failing map owns nothing") {
    Fixture fixture;
    Mapping<Machine> mapping;
    fixture.driver.fail({.call = Call::map});
    CHECK_FALSE(fixture.map(mapping).ok());
    CHECK_FALSE(mapping.owns());
    CHECK(fixture.driver.calls(Call::allow_access) == 0);
}

TEST_CASE("Mapping: if access is refused, the mapping is owned all the same") {
    Fixture fixture;
    Mapping<Machine> mapping;
    fixture.driver.fail({.call = Call::allow_access});
    CHECK_FALSE(fixture.map(mapping).ok());
    CHECK(mapping.owns());
    CHECK(mapping.unmap().ok());
    CHECK(fixture.driver.mapped_bytes() == 0);
}

TEST_CASE("Mapping: a failing unmap keeps it, to be tried again") {
    Fixture fixture;
    Mapping<Machine> mapping;
    REQUIRE(fixture.map(mapping).ok());
    fixture.driver.fail({.call = Call::unmap});
    CHECK_FALSE(mapping.unmap().ok());
    CHECK(mapping.owns());
    CHECK(mapping.unmap().ok());
    CHECK_FALSE(mapping.owns());
    CHECK(mapping.unmap().ok());
    CHECK(fixture.driver.calls(Call::unmap) == 2);
}

} // namespace memory_mapping_test
