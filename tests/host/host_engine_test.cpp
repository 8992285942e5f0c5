#include "host_support.hpp"
#include "memsaver/host/host_engine.hpp"
#include "support/machines.hpp"

namespace host_host_engine_test {
using namespace host_test;

TEST_CASE("host streams: a thread without work ends, and the next work starts another") {
    const auto threads = [] {
        const std::filesystem::directory_iterator all{"/proc/self/task"};
        return std::distance(begin(all), end(all));
    };
    const HostDriver driver = machine();
    const auto before = threads();
    const StreamRef stream = open_stream(driver);
    const EventRef event = open_event(driver);
    for (int i = 0; i < 2; ++i) {
        bool ran = false;
        REQUIRE(driver.enqueue(stream, [&] { ran = true; }).ok());
        REQUIRE(driver.record(event, stream).ok());
        REQUIRE(driver.wait(event).ok());
        CHECK(ran);
        for (int wait = 0; wait < 3000 && threads() > before; ++wait)
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
        CHECK(threads() <= before);
    }
    CHECK(driver.close_stream(stream).ok());
    CHECK(driver.violations().empty());
}

TEST_CASE("host faults: unmapping under pending work succeeds, the work does not run, the machine is lost") {
    const bool survives = [] {
        bool yes = false;
        SUBCASE("lost") { yes = false; }
        SUBCASE("survived on request") { yes = true; }
        return yes;
    }();
    const HostDriver driver = machine({.survive_faults = survives});
    Mapped a{driver};
    Mapped b{driver};
    const StreamRef stream = open_stream(driver);
    std::vector<unsigned char> host(page);
    int ran = 0;
    REQUIRE(driver.hold(stream).ok());
    REQUIRE(driver.enqueue(stream, a.address, page, [&] { ran += 1; }).ok());
    REQUIRE(driver.copy_to_host(host.data(), a.address, page, stream).ok());
    REQUIRE(driver.enqueue(stream, b.address, page, [&] { ran += 10; }).ok());
    CHECK(a.unmap().ok());
    CHECK(driver.violations().size() == 1);
    CHECK_FALSE(readable(a.address));
    if (!survives) {
        CHECK(driver.drain().kind == StatusKind::gone);
        CHECK(ran == 0);
        CHECK(driver.violations().size() == 1);
        return;
    }
    a.map(); // too late to help
    REQUIRE(driver.let_go(stream).ok());
    REQUIRE(driver.drain().ok());
    CHECK(ran == 10);
    CHECK(driver.violations().size() == 1);
    a.give_back(); // no longer in use
    b.give_back();
    REQUIRE(driver.close_stream(stream).ok());
    CHECK(driver.counts() == HostCounts{});
    CHECK(driver.violations().size() == 1);
}

TEST_CASE("host faults: unmapping under a running kernel is refused, and works afterwards") {
    const HostDriver driver = machine({.survive_faults = true});
    Mapped a{driver, 3 * page};
    Turnstile started, refused;
    int seen = -1;
    REQUIRE(driver
                .enqueue({}, a.address, a.bytes,
                         [&] {
                             bytes_at(a.address)[0] = 8;
                             started.open();
                             refused.pass();
                             seen = bytes_at(a.address)[0];
                         })
                .ok());
    started.pass();
    CHECK(a.unmap() == HostStatus::invalid_value);
    CHECK(driver.violations().size() == 1);
    CHECK(driver.unreserve(a.address, a.bytes) == HostStatus::invalid_value); // they are mapped
    refused.open();
    REQUIRE(driver.drain().ok());
    CHECK(seen == 8);
    REQUIRE(a.unmap().ok());
    CHECK_FALSE(readable(a.address));
    CHECK_FALSE(readable(a.address + 2 * page));
    CHECK(driver.violations().size() == 2);
    REQUIRE(driver.release(a.handle).ok());
    REQUIRE(driver.unreserve(a.address, a.bytes).ok());
}

TEST_CASE("late host streams: nothing starts until a thread waits for it, and then no more than that") {
    const HostDriver driver = machine({.late = true});
    const Mapped a{driver};
    const StreamRef first = open_stream(driver);
    const StreamRef second = open_stream(driver);
    const EventRef ready = open_event(driver);
    const EventRef done = open_event(driver);
    unsigned char seen = 0;
    REQUIRE(driver.fill(a.address, 5, page, first).ok());
    REQUIRE(driver.record(ready, first).ok());
    REQUIRE(driver.fill(a.address, 6, page, first).ok());

    SUBCASE("a stream that follows") {
        REQUIRE(driver.follow(second, ready).ok());
        REQUIRE(driver.enqueue(second, a.address, page, [&] { seen = bytes_at(a.address)[0]; }).ok());
        REQUIRE(driver.record(done, second).ok());
        REQUIRE(driver.wait(done).ok());
        CHECK(seen == 5); // not 6, which was not waited for
    }
    SUBCASE("a stream that does not follow") {
        REQUIRE(driver.enqueue(second, a.address, page, [&] { seen = bytes_at(a.address)[0]; }).ok());
        REQUIRE(driver.record(done, second).ok());
        REQUIRE(driver.wait(done).ok());
        CHECK(seen == 0); // every time
    }
    SUBCASE("nor what the next work waits for") {
        std::atomic<bool> ran{false};
        REQUIRE(driver.enqueue(second, [&] { ran = true; }).ok());
        REQUIRE(driver.record(done, second).ok());
        const StreamRef third = open_stream(driver);
        const EventRef before = open_event(driver);
        REQUIRE(driver.fill(a.address, 7, 1, third).ok());
        REQUIRE(driver.record(before, third).ok());
        REQUIRE(driver.follow(third, done).ok());
        REQUIRE(driver.wait(before).ok());
        std::this_thread::sleep_for(std::chrono::milliseconds{20}); // long enough for its thread to run it
        CHECK_FALSE(ran);
    }
    SUBCASE("a query starts it") {
        bool yes = false;
        while (!yes) {
            REQUIRE(driver.query(ready, yes).ok());
            std::this_thread::yield();
        }
        CHECK(bytes_at(a.address)[0] == 5);
    }
    SUBCASE("closing a stream starts its work, and the work that it follows") {
        REQUIRE(driver.follow(second, ready).ok());
        REQUIRE(driver.enqueue(second, a.address, page, [&] { seen = bytes_at(a.address)[0]; }).ok());
        REQUIRE(driver.record(done, second).ok());
        REQUIRE(driver.close_stream(second).ok());
        REQUIRE(driver.wait(done).ok());
        CHECK(seen == 5);
    }
    SUBCASE("closing a stream is enough for its work to run") {
        Turnstile ran;
        REQUIRE(driver.enqueue(second, [&] { ran.open(); }).ok());
        REQUIRE(driver.hold(second).ok()); // nothing could release it any more
        REQUIRE(driver.close_stream(second).ok());
        ran.pass();
    }
    SUBCASE("a pause that does not wait") {
        CHECK(driver.unmap(a.address, page).ok());
        CHECK(driver.violations().size() == 1);
        CHECK(driver.drain().kind == StatusKind::gone);
    }
    SUBCASE("drain starts everything") {
        REQUIRE(driver.drain().ok());
        CHECK(bytes_at(a.address)[0] == 6);
    }
}
} // namespace host_host_engine_test
