// Trimming: unused pages are released, used pages stay.
#include "support/machines.hpp"

namespace arena_trim_test {
using namespace test;
using ArenaOf = TaggedArena<MachineDriver>;

TEST_CASE_FIXTURE(OnMachine, "trim releases extents without live blocks" * on_machines) {
    ArenaOf arena{machine.driver, "trim"};
    std::vector<void*> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(arena.allocate(32_MiB));
    const std::size_t mapped = machine.driver.handle_bytes();
    CHECK(arena.trim().released_bytes == mapped - 160_MiB);
    arena.deallocate(blocks[1]); // without a stream: the trim waits for the device, so it counts
    arena.deallocate(blocks[3], already_idle);
    write_pattern(machine.driver, blocks[2], 1_MiB, 2);
    const Report report = arena.trim();
    CHECK(report.released_bytes == 64_MiB);
    CHECK(machine.driver.handle_bytes() == 96_MiB);
    CHECK(arena.usage().mapped_bytes == 96_MiB);
    CHECK(arena.trim().released_bytes == 0);
    CHECK(has_pattern(machine.driver, blocks[2], 1_MiB, 2));
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) arena.deallocate(blocks[i]);
    CHECK(arena.trim().released_bytes == 96_MiB);
    CHECK(arena.usage().state == "empty");
    CHECK(arena.allocate(1_MiB) != nullptr);
}

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
