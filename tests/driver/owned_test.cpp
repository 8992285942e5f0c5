// Resources are returned to the driver once, by their last owner. The sweeps (tests/failure) fail the calls of owners.
#include "support/machines.hpp"

namespace driver_owned_test {
using namespace test;

template <class T>
constexpr bool is_an_owner =
    !std::is_copy_constructible_v<T> && std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
static_assert(is_an_owner<Mapping>);

template <class Owned, class... What>
void opens_moves_and_closes_once(Call close, What... what) {
    static_assert(is_an_owner<Owned>);
    CAPTURE(call_name(close));
    const FaultyDriver<HostDriver> driver{HostDriver{64_MiB}};
    {
        Owned one;
        CHECK_FALSE(one.owns());
        REQUIRE(one.open(driver, what...).ok());
        CHECK(one.owns());
        Owned two{std::move(one)};
        CHECK_FALSE(one.owns()); // NOLINT(bugprone-use-after-move): that is what is tested
        Owned three;
        REQUIRE(three.open(driver, what...).ok());
        three = std::move(two); // releases its previous resource
        Owned& same = three;
        three = std::move(same);
        CHECK(three.owns());
        CHECK(driver.calls(close) == 1);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.calls(close) == 2);
    CHECK(driver.violations().empty());
}

TEST_CASE("an owner opens, moves, and closes once") {
    opens_moves_and_closes_once<OwnedStream>(Call::close_stream);
    opens_moves_and_closes_once<OwnedEvent>(Call::close_event);
    opens_moves_and_closes_once<OwnedFile>(Call::close_file, "/tmp");
    opens_moves_and_closes_once<OwnedPages>(Call::release, std::size_t{2_MiB});
    opens_moves_and_closes_once<Reservation>(Call::unreserve, std::size_t{8_MiB}, std::size_t{16_MiB});
}
} // namespace driver_owned_test
