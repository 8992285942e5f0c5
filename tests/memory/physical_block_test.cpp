// Physical memory is counted while it is owned, and goes back once.
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/memory/physical_block.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <type_traits>
#include <utility>

namespace memory_physical_block_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;
static_assert(!std::is_copy_constructible_v<PhysicalBlock<Machine>>);
static_assert(std::is_nothrow_move_constructible_v<PhysicalBlock<Machine>>);

TEST_CASE("PhysicalBlock: owns nothing, then a handle, then nothing") {
    const Machine driver{HostDriver{64_MiB}};
    PhysicalBlock<Machine> block;
    CHECK_FALSE(block.owns());
    CHECK(block.bytes() == 0);
    CHECK(block.release().ok());
    REQUIRE(block.create(driver, 4_MiB).ok());
    CHECK(block.owns());
    CHECK(block.bytes() == 4_MiB);
    CHECK(driver.handle_bytes() == 4_MiB);
    CHECK(block.release().ok());
    CHECK(block.bytes() == 0);
    CHECK(driver.everything_given_back());
    CHECK(block.release().ok());
    CHECK(driver.calls(Call::release) == 1);
}

TEST_CASE("PhysicalBlock: moves, and the last owner gives back") {
    const Machine driver{HostDriver{64_MiB}};
    {
        PhysicalBlock<Machine> one;
        REQUIRE(one.create(driver, 2_MiB).ok());
        const PageHandle handle = one.handle();
        PhysicalBlock<Machine> two{std::move(one)};
        PhysicalBlock<Machine> three;
        REQUIRE(three.create(driver, 4_MiB).ok());
        three = std::move(two);
        CHECK(three.handle() == handle);
        CHECK(three.bytes() == 2_MiB);
        CHECK(driver.handle_bytes() == 2_MiB);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}

TEST_CASE("PhysicalBlock: a failing create owns nothing, a failing release keeps what is owned") {
    const Machine driver{HostDriver{8_MiB}};
    PhysicalBlock<Machine> block;
    CHECK(block.create(driver, 16_MiB).kind == StatusKind::out_of_memory);
    CHECK_FALSE(block.owns());
    REQUIRE(block.create(driver, 2_MiB).ok());
    driver.fail({.call = Call::release});
    CHECK_FALSE(block.release().ok());
    CHECK(block.bytes() == 2_MiB);
    CHECK(block.release().ok());
    CHECK_FALSE(block.owns());
    CHECK(driver.everything_given_back());
}

} // namespace memory_physical_block_test
