// Pausing an arena after a pause or a resume that failed, and repeatedly.
#include "support/machines.hpp"

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

TEST_CASE("blocks that were freed while paused: their bytes are free at the next pause, or trim" * on_machines) {
    for (const bool trims : {false, true}) {
        CAPTURE(trims);
        const Checked machine;
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
}
} // namespace arena_pause_test
