// Reserved addresses go back once, whatever fails and wherever their owner is moved.
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/memory/reservation.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <utility>

namespace memory_reservation_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;
static_assert(!std::is_copy_constructible_v<Reservation<Machine>>);
static_assert(std::is_nothrow_move_constructible_v<Reservation<Machine>>);
static_assert(std::is_nothrow_move_assignable_v<Reservation<Machine>>);

TEST_CASE("Reservation: takes addresses at its alignment, and gives them back when it dies") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const Reservation<Machine> reservation{driver, 8_MiB, 16_MiB};
        CHECK(reservation.address() % 16_MiB == 0);
        CHECK(reservation.address() != 0);
        CHECK(reservation.bytes() == 8_MiB);
        CHECK(driver.reserved_bytes() == 8_MiB);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}

TEST_CASE("Reservation: moves, and is given back by the last owner only") {
    const Machine driver{HostDriver{64_MiB}};
    {
        Reservation<Machine> one{driver, 2_MiB, 2_MiB};
        const Address address = one.address();
        Reservation<Machine> two{std::move(one)};
        CHECK(two.address() == address);
        Reservation<Machine> three{driver, 4_MiB, 2_MiB};
        three = std::move(two); // what it had goes back
        CHECK(three.address() == address);
        CHECK(three.bytes() == 2_MiB);
        CHECK(driver.reserved_bytes() == 2_MiB);
        Reservation<Machine>& same = three;
        three = std::move(same);
        CHECK(three.address() == address);
        const Reservation<Machine> empty;
        CHECK(empty.address() == 0);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.calls(Call::unreserve) == 2);
    CHECK(driver.violations().empty());
}

TEST_CASE("Reservation: a failing reserve throws what was attempted, and owns nothing") {
    const Machine driver{HostDriver{64_MiB}};
    driver.fail({.call = Call::reserve, .kind = StatusKind::out_of_memory});
    try {
        const Reservation<Machine> reservation{driver, 8_MiB, 2_MiB};
        FAIL("nothing was thrown");
    } catch (const OutOfMemory& error) {
        CHECK(std::string{error.what()}.find("reserve addresses (8.00 MiB") != std::string::npos);
        CHECK(error.needed_bytes() == 8_MiB);
    }
    CHECK(driver.calls(Call::unreserve) == 0);
    CHECK(driver.everything_given_back());
}

TEST_CASE("Reservation: close tells its failure, keeps the addresses and can be tried again") {
    const Machine driver{HostDriver{64_MiB}};
    Reservation<Machine> reservation{driver, 2_MiB, 2_MiB};
    driver.fail({.call = Call::unreserve});
    CHECK_FALSE(reservation.close().ok());
    CHECK(reservation.address() != 0);
    CHECK(reservation.close().ok());
    CHECK(reservation.address() == 0);
    CHECK(driver.everything_given_back());
    CHECK(reservation.close().ok());
    CHECK(driver.calls(Call::unreserve) == 2);
}

} // namespace memory_reservation_test
