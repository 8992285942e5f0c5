// The wait before memory is released: only for the work that an order names, and no longer than the timeout.
// tests/saver/devices_test.cpp tests several devices.
#include "support/machines.hpp"

namespace arena_idle_wait_test {
using namespace test;
using Machine = MachineDriver;
using ArenaOn = TaggedArena<Machine>;
constexpr std::chrono::nanoseconds none{0};
constexpr std::chrono::hours far{1};

/// Releases the work once the wait for it has begun to query.
void let_go_when_waited_for(const Machine& driver, HeldStream& work, Call call) {
    driver.on_call([&work, call](const CallRecord& made) {
        if (made.call == call) work.let_go();
    });
}

TEST_CASE("already_idle makes no driver call, and an operation that releases nothing waits for nothing") {
    const Checked machine{host_machine};
    ArenaOn arena{machine.driver, "idle"};
    const HeldStream work{host_of(machine.driver)};
    const auto asked = [&] {
        std::uint64_t calls = 0;
        for (const Call call : {Call::open_event, Call::record, Call::record_device, Call::query, Call::wait,
                                Call::drain, Call::capturing, Call::owns_stream})
            calls += machine.driver.calls(call);
        return calls;
    };
    const std::uint64_t before = asked();
    CHECK(arena.pause({.timeout = none}).tags.empty()); // there is no memory yet
    (void)arena.allocate(2_MiB);
    CHECK(arena.pause({.order = already_idle, .timeout = none}).released_bytes == 2_MiB);
    CHECK(arena.pause({.timeout = none}).tags.empty());
    CHECK(asked() == before);
    (void)arena.resume();
    CHECK(arena.trim({.order = already_idle, .timeout = none}).released_bytes == 0);
}

TEST_CASE_FIXTURE(OnMachine, "a wait is one driver call, with and without a timeout") {
    ArenaOn arena{machine.driver, "waits"};
    (void)arena.allocate(2_MiB);
    HeldStream work{host_of(machine.driver)};
    std::optional<std::chrono::nanoseconds> timeout;
    Call call = Call::wait;
    SUBCASE("without") {}
    SUBCASE("with one that ends after the clock does") { timeout = std::chrono::nanoseconds::max(); }
    SUBCASE("with") {
        timeout = far;
        call = Call::query;
    }
    let_go_when_waited_for(machine.driver, work, call);
    CHECK(arena.pause({.timeout = timeout}).released_bytes == 2_MiB);
    machine.driver.on_call({});
}

TEST_CASE_FIXTURE(OnMachine, "a time limit that ended before the wait began, however long ago, changes nothing") {
    ArenaOn arena{machine.driver, "hurried"};
    void* const block = arena.allocate(1_MiB);
    write_pattern(machine.driver, block, 1_MiB, 1);
    HeldStream work{host_of(machine.driver)};
    for (const std::chrono::nanoseconds timeout : {none, std::chrono::nanoseconds::min()}) {
        CHECK_THROWS_AS((void)arena.pause({.timeout = timeout}), NotIdle);
        CHECK_THROWS_AS((void)arena.trim({.order = after(work.get()), .timeout = timeout}), NotIdle);
        CHECK(machine.driver.handle_bytes() == 2_MiB);
        CHECK(arena.usage().state == "active");
        CHECK(has_pattern(machine.driver, block, 1_MiB, 1));
        arena.deallocate(arena.allocate(1_MiB), already_idle); // still works, from the same memory
    }
    work.finish();
    CHECK(arena.pause({.order = after(work.get()), .timeout = far}).released_bytes == 2_MiB);
}

TEST_CASE_FIXTURE(OnMachine, "after(...) waits for the streams and events that it names, and for no other") {
    ArenaOn arena{machine.driver, "ordered"};
    (void)arena.allocate(2_MiB);
    HeldStream named{host_of(machine.driver)};
    HeldStream marked{host_of(machine.driver)};
    const HeldStream other{host_of(machine.driver)};
    EventRef event;
    REQUIRE(machine.driver.open_event(marked.get(), event).ok());
    REQUIRE(machine.driver.record(event, marked.get()).ok());
    const Order order = after(named.get(), event);
    const auto pause = [&] { return arena.pause({.order = order, .timeout = std::chrono::milliseconds{1}}); };
    CHECK_THROWS_AS((void)pause(), NotIdle);
    named.finish();
    CHECK_THROWS_AS((void)pause(), NotIdle);
    marked.finish();
    CHECK(arena.pause({.order = order}).released_bytes == 2_MiB);
    CHECK(machine.driver.close_event(event).ok());
}
} // namespace arena_idle_wait_test
