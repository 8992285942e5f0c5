#include "host_support.hpp"
#include "memsaver/host/host_engine.hpp"
#include "support/machines.hpp"

namespace host_host_machine_test {
using namespace host_test;

struct Setup {
    HostDriver driver = machine();
    Mapped a{driver};
    StreamRef stream = open_stream(driver);
    StreamRef other = open_stream(driver);
    EventRef event = open_event(driver);
    GraphRef graph;

    bool capturing(StreamRef s) const {
        bool yes = false;
        REQUIRE(driver.capturing(s, yes).ok());
        return yes;
    }
    unsigned char first_byte() const {
        REQUIRE(driver.drain().ok());
        return bytes_at(a.address)[0];
    }
};

TEST_CASE("host captures: work is recorded and not run, and replayed on whatever pages are there") {
    Setup s;
    unsigned char out = 0;
    REQUIRE(s.driver.begin_capture(s.stream, CaptureMode::global).ok());
    CHECK(s.capturing(s.stream));
    CHECK_FALSE(s.capturing(s.other));
    REQUIRE(s.driver.fill(s.a.address, 2, page, s.stream).ok());
    REQUIRE(s.driver.enqueue(s.stream, s.a.address, page, [&] { bytes_at(s.a.address)[0] += 1; }).ok());
    REQUIRE(s.driver.copy_to_host(&out, s.a.address, 1, s.stream).ok());
    CHECK(s.first_byte() == 0); // also: draining keeps the capture valid and does not wait for it
    REQUIRE(s.driver.end_capture(s.stream, s.graph).ok());
    CHECK_FALSE(s.capturing(s.stream));
    CHECK(s.first_byte() == 0);
    CHECK(s.driver.counts().graphs == 1);

    for (int round = 0; round < 2; ++round) {
        REQUIRE(s.driver.launch(s.graph, s.other).ok());
        CHECK(s.first_byte() == 3);
        CHECK(out == 3);
        out = 0;
        // Pause and resume.
        REQUIRE(s.a.unmap().ok());
        REQUIRE(s.driver.release(s.a.handle).ok());
        REQUIRE(s.driver.create(page, s.a.handle).ok());
        s.a.map();
    }
    REQUIRE(s.driver.launch(s.graph, s.stream).ok());
    REQUIRE(s.driver.close_graph(s.graph).ok()); // launched work runs anyway
    CHECK(s.first_byte() == 3);
    CHECK(s.driver.violations().empty());
    CHECK_FALSE(s.driver.launch(s.graph, s.stream).ok());
    CHECK_FALSE(s.driver.close_graph(s.graph).ok());
    CHECK(s.driver.violations().size() == 2);
    CHECK(s.driver.close_event(s.event).ok());
    CHECK(s.driver.counts().events == 0);
}

TEST_CASE("host captures: synchronize, and a call without relaxed mode, break the captures that CUDA's would") {
    enum class By { same_stream, other_stream, unrelaxed };
    const auto breaks = [](By by, CaptureMode mode, bool same_thread) {
        Setup s;
        REQUIRE(s.driver.begin_capture(s.stream, mode).ok());
        Status status;
        const auto call = [&] {
            status = by == By::unrelaxed ? s.driver.call_unrelaxed()
                                         : s.driver.synchronize(by == By::same_stream ? s.stream : s.other);
        };
        if (same_thread)
            call();
        else
            std::thread{call}.join();
        const bool broken = !s.driver.end_capture(s.stream, s.graph).ok();
        CHECK(broken == !status.ok());
        return broken;
    };
    for (const bool same_thread : {true, false}) CHECK(breaks(By::same_stream, CaptureMode::relaxed, same_thread));
    for (const By by : {By::other_stream, By::unrelaxed}) {
        CHECK(breaks(by, CaptureMode::global, true));
        CHECK(breaks(by, CaptureMode::global, false));
        CHECK(breaks(by, CaptureMode::thread_local_, true));
        CHECK_FALSE(breaks(by, CaptureMode::thread_local_, false));
        CHECK_FALSE(breaks(by, CaptureMode::relaxed, true));
    }
}

TEST_CASE("host captures: events inside and outside do not mix") {
    Setup s;
    const EventRef outside = open_event(s.driver);
    REQUIRE(s.driver.record(outside, s.other).ok());
    REQUIRE(s.driver.begin_capture(s.stream, CaptureMode::global).ok());
    REQUIRE(s.driver.record(s.event, s.stream).ok());
    bool yes = false;
    SUBCASE("no point in time") {
        CHECK(s.driver.query(s.event, yes) == HostStatus::captured_event);
        CHECK(s.driver.wait(s.event) == HostStatus::captured_event);
        CHECK(s.driver.end_capture(s.stream, s.graph).ok());
        CHECK(s.driver.query(s.event, yes) == HostStatus::captured_event); // still
        CHECK(s.driver.follow(s.other, s.event) == HostStatus::captured_event);
        SUBCASE("until it marks a stream") { CHECK(s.driver.record(s.event, s.stream).ok()); }
        SUBCASE("until it marks the device") { CHECK(s.driver.record_device(s.event).ok()); }
        CHECK(s.driver.query(s.event, yes).ok());
    }
    SUBCASE("following a stream outside breaks the capture") {
        CHECK(s.driver.follow(s.stream, outside) == HostStatus::capture_isolation);
        CHECK(s.driver.end_capture(s.stream, s.graph) == HostStatus::capture_invalidated);
    }
    SUBCASE("a stream that follows joins, and leaves with the end") {
        CHECK(s.driver.follow(s.other, s.event).ok());
        CHECK(s.capturing(s.other));
        CHECK(s.driver.fill(s.a.address, 9, 1, s.other).ok());
        CHECK(s.driver.record(outside, s.other).ok());
        CHECK(s.driver.follow(s.stream, outside).ok());
        CHECK(s.driver.end_capture(s.other, s.graph) == HostStatus::illegal_state); // it did not begin the capture
        CHECK(s.driver.end_capture(s.stream, s.graph).ok());
        CHECK_FALSE(s.capturing(s.other));
        CHECK(s.first_byte() == 0);
        CHECK(s.driver.launch(s.graph, s.stream).ok());
        CHECK(s.first_byte() == 9);
    }
    SUBCASE("a joined stream that is closed breaks the capture") {
        CHECK(s.driver.follow(s.other, s.event).ok());
        CHECK(s.driver.close_stream(s.other).ok());
        CHECK(s.driver.end_capture(s.stream, s.graph) == HostStatus::capture_invalidated);
    }
    SUBCASE("closing the first stream ends the capture") {
        CHECK(s.driver.follow(s.other, s.event).ok());
        CHECK(s.driver.close_stream(s.stream).ok());
        CHECK_FALSE(s.capturing(s.other));
        CHECK(s.driver.record_device(s.event).ok());
    }
}

TEST_CASE("host machine: a violation names the tag whose memory work was about") {
    const HostDriver driver{64_MiB, {.survive_faults = true}};
    MemorySaver saver{driver};
    void* const block = saver.arena("kv_cache").allocate(1_MiB);
    (void)saver.pause("kv_cache");
    REQUIRE(driver.enqueue({}, reinterpret_cast<Address>(block), 1_MiB, [] {}).ok());
    REQUIRE(driver.drain().ok());
    REQUIRE(driver.violations().size() == 1);
    const std::string text = driver.violations().front();
    CHECK(text.starts_with("work on memory that is not mapped, or without access: paused, freed, or elastic and not "
                           "committed (1.00 MiB at 0x"));
    CHECK(text.ends_with(", tag \"kv_cache\")"));
}
} // namespace host_host_machine_test
