#include "host_support.hpp"
#include "memsaver/host/host_driver.hpp"

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
    unsigned char byte = 0;
    auto pending = std::make_shared<int>(0);
    REQUIRE(driver.hold(stream).ok());
    REQUIRE(driver.enqueue(stream, [pending] { ++*pending; }).ok());
    REQUIRE(driver.record(event, stream).ok());
    driver.lose();

    std::size_t n = 0;
    bool yes = false;
    DeviceMemory memory;
    PageHandle handle;
    GraphRef graph;
    StreamRef other;
    const Status answers[] = {
        driver.granularity(n),
        driver.memory(memory),
        driver.reserve(page, 0, address),
        driver.create(page, handle),
        driver.map(a.address, page, a.handle),
        driver.allow_access(a.address, page),
        driver.unmap(a.address, page),
        driver.release(a.handle),
        driver.unreserve(a.address, page),
        driver.allocate_plain(1, address),
        driver.free_plain(address),
        driver.open_stream(other),
        driver.open_event({}, event),
        driver.record(event, stream),
        driver.record_device(event),
        driver.follow(stream, event),
        driver.query(event, yes),
        driver.wait(event),
        driver.drain(),
        driver.capturing(stream, yes),
        driver.copy_to_host(&byte, a.address, 1, stream),
        driver.copy_to_device(a.address, &byte, 1, stream),
        driver.fill(a.address, 0, 1, stream),
        driver.enqueue(stream, [] {}),
        driver.hold(stream),
        driver.let_go(stream),
        driver.begin_capture(stream, CaptureMode::global),
        driver.end_capture(stream, graph),
        driver.update_graph(stream, graph),
        driver.launch(graph, stream),
        driver.close_graph(graph),
        driver.call_unrelaxed(),
        driver.pin_host(&byte, 1),
        driver.unpin_host(&byte),
        driver.synchronize(stream),
        driver.close_event(event),
        driver.close_stream(stream),
    };
    for (const Status& answer : answers) CHECK(answer.kind == StatusKind::gone);
    CHECK(*pending == 0);
    CHECK(driver.counts().handles == 1);
    CHECK(driver.violations().empty());
}
} // namespace host_host_driver_test
