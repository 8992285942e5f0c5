// Pausing and resuming an arena: repeatedly, after failures, and what is not waited for
// (tests/saver/time_limits_test.cpp tests timeouts, tests/planted/ what waits).
#include "memsaver/arena/arena.hpp"
#include "support/each_of.hpp"

namespace arena_pause_test {
using namespace test;

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

TEST_CASE_FIXTURE(OnMachine, "a pause after one that failed keeps its timeout") {
    ArenaOf<HostBackup> arena{machine.driver, "again", HostBackup{.threads = 1}};
    (void)arena.allocate(2_MiB);
    machine.driver.fail({.call = Call::copy_to_host});
    CHECK_THROWS_AS((void)arena.pause({.order = already_idle}), DriverError);
    {
        const HeldStream busy{host_of(machine.driver)};
        CHECK_THROWS_AS((void)arena.pause({.order = already_idle, .timeout = std::chrono::milliseconds{1}}), NotIdle);
    }
    CHECK(arena.pause({.timeout = std::chrono::hours{1}}).released_bytes > 0);
}

TEST_CASE_FIXTURE(OnMachine, "blocks that were freed while paused: their bytes are free at the next pause, or trim" *
                                 on_machines) {
    const bool trims = either("trim", "pause");
    ArenaOf<HostBackup> arena{machine.driver, "rounds", HostBackup{.threads = 1}, {.capacity = 64_MiB}};
    void* const kept = arena.allocate(8_MiB);
    write_pattern(machine.driver, kept, 8_MiB, 1);
    (void)arena.pause();
    if (trims) arena.deallocate(kept);
    for (int round = 0; round < 20; ++round) {
        if (trims) {
            (void)arena.trim();
            CHECK(arena.usage().state == "empty");
            CHECK(machine.driver.pinned_bytes() == 0);
        }
        void* const block = arena.allocate(8_MiB);
        (void)arena.pause();
        CHECK(arena.usage().paused_bytes == (trims ? 8_MiB : 16_MiB));
        CHECK(machine.driver.pinned_bytes() <= 16_MiB);
        arena.deallocate(block);
    }
    (void)arena.resume();
    if (!trims) CHECK(has_pattern(machine.driver, kept, 8_MiB, 1));
}

TEST_CASE_FIXTURE(OnMachine, "with nothing to resume, a margin is no reason to refuse" * on_machines) {
    ArenaOf<> arena{machine.driver, "margin", Discard{}, {.margin = 256_MiB}};
    (void)arena.allocate(2_MiB);
    const Ballast ballast{machine.driver, 120_MiB};
    CHECK(arena.resume().tags.empty());
    CHECK_THROWS_AS((void)arena.allocate(8_MiB), OutOfMemory);
    (void)arena.pause();
    CHECK_THROWS_AS((void)arena.resume(), OutOfMemory);
}

TEST_CASE_FIXTURE(OnMachine, "bytes that others keep are no bytes to resume, nor are those in which no block lives") {
    ArenaOf<> arena{machine.driver, "reader", Discard{}, {.single_handle = true}};
    void* const borrowed = arena.allocate(6_MiB);
    const std::size_t shared = arena.usage().mapped_bytes; // all in one handle
    (void)arena.allocate(shared);
    arena.core().set_borrowed(shared);
    (void)arena.allocate(4 * shared);
    const std::size_t own = arena.usage().mapped_bytes - 2 * shared;
    (void)arena.pause();
    CHECK(arena.bytes_to_resume() == own);
    arena.deallocate(borrowed);
    CHECK(arena.bytes_to_resume() == own);
    (void)arena.resume();
}

TEST_CASE("saved bytes are freed with their last block, whichever pause saved them" * on_machines) {
    for (const bool retain : {true, false}) {
        for (const bool another_pause : {true, false}) { // with its own policy, whose block stays live
            CAPTURE(retain);
            CAPTURE(another_pause);
            const Checked machine;
            ArenaOf<HostBackup> arena{machine.driver, "kept", HostBackup{.retain = retain, .threads = 1}};
            void* const block = arena.allocate(32_MiB);
            (void)arena.pause();
            CHECK(machine.driver.pinned_bytes() >= 32_MiB);
            if (another_pause) {
                (void)arena.allocate(2_MiB);
                (void)arena.pause({.bytes = Discard{}});
            }
            arena.deallocate(block);
            (void)arena.resume();
            CHECK(machine.driver.pinned_bytes() == 0);
            CHECK(machine.driver.host_bytes() == 0);
            CHECK(arena.usage().backed_up_bytes == 0);
        }
    }
}

TEST_CASE("already_idle makes no driver call, and an operation that releases nothing waits for nothing") {
    const Checked machine{host_machine};
    ArenaOf<> arena{machine.driver, "idle"};
    const HeldStream work{host_of(machine.driver)};
    const auto asked = [&] {
        std::uint64_t calls = 0;
        for (const Call call : {Call::open_event, Call::record, Call::record_device, Call::query, Call::wait,
                                Call::drain, Call::capturing, Call::owns_stream})
            calls += machine.driver.calls(call);
        return calls;
    };
    const std::uint64_t before = asked();
    CHECK(arena.pause({.timeout = 0ns}).tags.empty()); // there is no memory yet
    (void)arena.allocate(2_MiB);
    CHECK(arena.pause({.order = already_idle, .timeout = 0ns}).released_bytes == 2_MiB);
    CHECK(arena.pause({.timeout = 0ns}).tags.empty());
    CHECK(asked() == before);
    (void)arena.resume();
    CHECK(arena.trim({.order = already_idle, .timeout = 0ns}).released_bytes == 0);
}
} // namespace arena_pause_test
