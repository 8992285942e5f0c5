#include "host_support.hpp"
#include "memsaver/host/host_driver.hpp"
#include "support/gullible.hpp"

#include <set>
#include <type_traits>

namespace host_host_driver_test {
using namespace host_test;

static_assert(!std::is_convertible_v<std::size_t, HostDriver>, "a number is no machine");

TEST_CASE("HostDriver: has 1 GiB unless told otherwise; a granularity must be possible") {
    DeviceMemory memory;
    REQUIRE(HostDriver{}.memory(memory).ok());
    CHECK(memory.total_bytes == 1_GiB);
    CHECK_THROWS_AS((HostDriver{1_GiB, {.granularity = 0}}), Misuse);
    CHECK_THROWS_AS((HostDriver{1_GiB, {.granularity = 3 * page}}), Misuse);
    CHECK_THROWS_AS((HostDriver{1_GiB, {.granularity = 512}}), Misuse);
}

TEST_CASE("HostDriver: once lost, every call returns gone, and the machine's end frees everything") {
    const HostDriver driver = machine();
    Mapped a{driver};
    const StreamRef stream = open_stream(driver);
    EventRef event = open_event(driver);
    Address address = 0;
    REQUIRE(driver.allocate_plain(page, address).ok());
    auto pending = std::make_shared<int>(0);
    REQUIRE(driver.hold(stream).ok());
    REQUIRE(driver.enqueue(stream, [pending] { ++*pending; }).ok());
    REQUIRE(driver.record(event, stream).ok());
    driver.lose();

    std::set<Call> answered; // the device is not needed, or lacks it
    const std::vector<StatusKind> kinds = test::one_of_each(driver, false).kinds;
    for (std::size_t i = 0; i < kinds.size(); ++i)
        if (kinds[i] != StatusKind::gone) answered.insert(static_cast<Call>(i));
    CHECK(answered == std::set{Call::owns_stream, Call::reach_peer, Call::take, Call::ask_for_room, Call::create_shared,
                               Call::export_pages, Call::import_pages});
    const Status own[] = {driver.enqueue(stream, [] {}), driver.hold(stream),        driver.let_go(stream),
                          driver.call_unrelaxed(),       driver.synchronize(stream), driver.unreserve(a.address, page)};
    for (const Status& answer : own) CHECK(answer.kind == StatusKind::gone);
    CHECK(*pending == 0);
    CHECK(driver.counts().handles == 1);
    CHECK(driver.violations().empty());
}
} // namespace host_host_driver_test
