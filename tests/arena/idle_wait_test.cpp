// The wait before memory is taken away: for just the work that an order names, for no longer than it is allowed.
#include "memsaver/arena/idle_wait.hpp"
#include "memsaver/arena/operation_options.hpp"
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace arena_idle_wait_test {

using namespace memsaver;

using Machine = FaultyDriver<HostDriver>;

/// A stream with work that stands still until it is let go.
struct Work {
    explicit Work(const Machine& on) : driver{on} {
        REQUIRE(stream.open(driver).ok());
        REQUIRE(driver.inner().hold(stream.get()).ok());
        REQUIRE(driver.inner().enqueue(stream.get(), [this] { done = true; }).ok());
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    ~Work() {
        let_go();
        (void)driver.drain();
    }
    void let_go() const { CHECK(driver.inner().let_go(stream.get()).ok()); }

    Machine driver;
    OwnedStream<Machine> stream;
    std::atomic<bool> done{false};
};

Deadline past() { return std::chrono::steady_clock::now() - std::chrono::seconds{1}; }
Deadline far() { return std::chrono::steady_clock::now() + std::chrono::hours{1}; }

/// Lets the work go once the wait for it has begun to ask.
void let_go_when_waited_for(const Machine& driver, const Work& work, Call call) {
    driver.on_call([&work, call](const CallRecord& record) {
        if (record.call == call) work.let_go();
    });
}

TEST_CASE("wait_until_idle: already_idle asks nothing") {
    const Machine driver{HostDriver{64_MiB}};
    const Work work{driver};
    const std::uint64_t calls = driver.calls();
    wait_until_idle<Machine>({driver}, already_idle, {});
    CHECK(driver.calls() == calls);
    CHECK_FALSE(work.done);
    wait_until_idle<Machine>({}, {}, {}); // no device, nothing to wait for
}

TEST_CASE("wait_until_idle: by default every stream of every device") {
    const Machine one{HostDriver{64_MiB}};
    const Machine two{HostDriver{64_MiB, {.device = 1}}};
    {
        const Work a{one};
        const Work b{one};
        const Work c{two};
        a.let_go();
        b.let_go();
        CHECK_THROWS_AS(wait_until_idle<Machine>({one, two}, {}, past()), NotIdle);
        CHECK_FALSE(c.done);
        c.let_go();
        wait_until_idle<Machine>({one, two}, {}, {});
        CHECK(a.done);
        CHECK(b.done);
        CHECK(c.done);
    }
    CHECK_MESSAGE(one.everything_given_back(), one.leaks());
    CHECK_MESSAGE(two.everything_given_back(), two.leaks());
}

TEST_CASE("wait_until_idle: really waits, with and without an end to its patience") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const Work work{driver};
        SUBCASE("without") {
            let_go_when_waited_for(driver, work, Call::wait);
            wait_until_idle<Machine>({driver}, {}, {});
        }
        SUBCASE("with") {
            let_go_when_waited_for(driver, work, Call::query);
            wait_until_idle<Machine>({driver}, {}, far());
        }
        CHECK(work.done);
        driver.on_call({});
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("wait_until_idle: after(...) waits for the streams and events that it names, and for no other") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const Work named{driver};
        const Work marked{driver};
        const Work other{driver};
        OwnedEvent<Machine> event;
        REQUIRE(event.open(driver, marked.stream.get()).ok());
        REQUIRE(driver.record(event.get(), marked.stream.get()).ok());
        const Order order = after(named.stream.get(), event.get());
        CHECK_THROWS_AS(wait_until_idle<Machine>({driver}, order, past()), NotIdle);
        named.let_go();
        CHECK_THROWS_AS(wait_until_idle<Machine>({driver}, order, past()), NotIdle);
        marked.let_go();
        wait_until_idle<Machine>({driver}, order, {});
        CHECK(named.done);
        CHECK(marked.done);
        CHECK_FALSE(other.done);
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("wait_until_idle: streams and events of several devices are asked about through their own driver") {
    const Machine one{HostDriver{64_MiB}};
    const Machine two{HostDriver{64_MiB, {.device = 1}}};
    const Machine far_off{HostDriver{64_MiB, {.device = 2}}};
    {
        const Work here{one};
        const Work there{two};
        const Work elsewhere{far_off};
        const Work marked{two};
        OwnedEvent<Machine> event;
        REQUIRE(event.open(two, marked.stream.get()).ok());
        REQUIRE(two.record(event.get(), marked.stream.get()).ok());
        const Order order = after(there.stream.get(), here.stream.get(), event.get(), elsewhere.stream.get());
        const auto wait = [&](const Deadline& deadline) {
            return wait_until_idle<Machine>({one, two}, order, deadline, {one, two, far_off});
        };
        for (const Work* const work : {&here, &there, &elsewhere, &marked}) {
            CHECK_THROWS_AS(wait(past()), NotIdle);
            work->let_go();
        }
        const auto waits = wait({});
        CHECK(waits.size() == 3);
        for (const Work* const work : {&here, &there, &elsewhere, &marked}) CHECK(work->done);
    }
    for (const Machine& machine : {one, two, far_off}) {
        CHECK_MESSAGE(machine.everything_given_back(), machine.leaks());
        for (const auto& text : machine.inner().violations()) FAIL_CHECK(text);
    }
}

TEST_CASE("wait_until_idle: the default stream is that of every device concerned") {
    const Machine one{HostDriver{64_MiB}};
    const Machine two{HostDriver{64_MiB, {.device = 1}}};
    std::atomic<bool> done{false};
    REQUIRE(two.inner().hold({}).ok());
    REQUIRE(two.inner().enqueue({}, [&] { done = true; }).ok());
    CHECK_THROWS_AS(wait_until_idle<Machine>({one, two}, after(StreamRef{}), past()), NotIdle);
    REQUIRE(two.inner().let_go({}).ok());
    wait_until_idle<Machine>({one, two}, after(StreamRef{}), {});
    CHECK(done);
}

TEST_CASE("wait_until_idle: tells how long it waited for which device, and which one was still at work") {
    const Machine one{HostDriver{64_MiB}};
    const Machine two{HostDriver{64_MiB, {.device = 1}}};
    const Work work{two};
    CHECK_THROWS_WITH_AS(wait_until_idle<Machine>({one, two}, {}, past()),
                         "device 1 was still at work when the time allowed ran out; nothing has changed", NotIdle);
    constexpr std::chrono::milliseconds long_time{300};
    two.on_call([&](const CallRecord& made) {
        if (made.call != Call::wait) return;
        std::this_thread::sleep_for(long_time);
        work.let_go();
    });
    const auto waits = wait_until_idle<Machine>({one, two}, {}, {});
    REQUIRE(waits.size() == 2);
    CHECK(waits[0].driver() == one);
    CHECK(waits[1].driver() == two);
    CHECK(waits[1].waited() >= long_time);
    CHECK(waits[0].waited() < waits[1].waited());
    two.on_call({});
}

TEST_CASE("wait_until_idle: a stream that is being captured is misuse, and its capture goes on") {
    const Machine driver{HostDriver{64_MiB}};
    OwnedStream<Machine> stream;
    REQUIRE(stream.open(driver).ok());
    REQUIRE(driver.begin_capture(stream.get(), CaptureMode::global).ok());
    CHECK_THROWS_AS(wait_until_idle<Machine>({driver}, after(stream.get()), {}), Misuse);
    GraphRef graph;
    CHECK(driver.end_capture(stream.get(), graph).ok());
    CHECK(driver.close_graph(graph).ok());
}

TEST_CASE("wait_until_idle: every failing call is told, and leaves no event open") {
    for (const bool patient : {true, false}) {
        for (const bool device : {true, false}) {
            struct Fixture {
                Machine driver{HostDriver{64_MiB}};
                OwnedStream<Machine> stream;
            };
            const std::uint64_t points = sweep(
                {},
                [] {
                    Fixture fixture;
                    REQUIRE(fixture.stream.open(fixture.driver).ok());
                    return fixture;
                },
                [&](Fixture& fixture) {
                    const Order order = device ? Order{} : after(fixture.stream.get());
                    wait_until_idle<Machine>({fixture.driver}, order, patient ? Deadline{} : far());
                },
                [&](Fixture& fixture, const SweepPoint& point) {
                    // That an event was not closed is nothing that a wait could do anything about.
                    const bool closing = point.injected == 1 && !point.error;
                    CHECK(fixture.driver.outstanding().events == (closing ? 1 : 0));
                });
            CHECK(points >= (device ? 4 : 5));
        }
    }
}

TEST_CASE("a timeout that ends after the clock does is none") {
    CHECK(!deadline_after(std::chrono::nanoseconds::max()));
    CHECK(!deadline_after(std::nullopt));
    const Deadline soon = deadline_after(std::chrono::hours{1});
    REQUIRE(soon);
    CHECK(*soon > std::chrono::steady_clock::now());
    CHECK(*deadline_after(std::chrono::nanoseconds::min()) < std::chrono::steady_clock::now());
}

} // namespace arena_idle_wait_test
