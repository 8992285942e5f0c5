// What an arena does not wait for. tests/saver/time_limits_test.cpp tests timeouts, tests/planted/ what waits.
#include "support/machines.hpp"

namespace arena_idle_wait_test {
using namespace test;
constexpr std::chrono::nanoseconds none{0};

TEST_CASE("already_idle makes no driver call, and an operation that releases nothing waits for nothing") {
    const Checked machine{host_machine};
    TaggedArena<MachineDriver> arena{machine.driver, "idle"};
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
} // namespace arena_idle_wait_test
