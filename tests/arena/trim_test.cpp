// Trimming: unused pages are released, used pages stay.
#include "support/machines.hpp"

namespace arena_trim_test {
using namespace test;

TEST_CASE_FIXTURE(OnMachine, "addresses of pages that could not be unmapped are not freed" * on_machines) {
    TaggedArena<MachineDriver, HostBackup> arena{machine.driver, "in the way", HostBackup{.threads = 1}};
    void* const block = arena.allocate(24_MiB);
    (void)arena.pause();
    machine.driver.fail({.call = Call::copy_to_device});
    machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
    CHECK_THROWS_AS((void)arena.resume(), Error); // fails, and cannot be rolled back
    REQUIRE(arena.usage().held_bytes == 24_MiB);
    arena.deallocate(block);
    CHECK_THROWS_AS((void)arena.trim(), Error);
    CHECK_THROWS_AS((void)arena.pause(), Error);
    CHECK(arena.allocate(8_MiB) != nullptr); // at other addresses
    machine.driver.heal();
    (void)arena.trim();
    CHECK(arena.usage().held_bytes == 0);
    CHECK(arena.usage().paused_bytes == 0);
}
} // namespace arena_trim_test
