// Allocating from an arena: growth, and blocks in chunks. saver/misuse_test.cpp tests refused requests.
#include "support/machines.hpp"

namespace arena_allocate_test {
using namespace test;
using ArenaOf = TaggedArena<MachineDriver>;

TEST_CASE_FIXTURE(OnMachine, "growth falls back to the exact need" * on_machines) {
    for (const StatusKind kind : {StatusKind::out_of_memory, StatusKind::out_of_host_memory}) {
        ArenaOf arena{machine.driver, "tight"};
        (void)arena.allocate(64_MiB); // the next step would be 32 MiB
        const auto failed = machine.driver.injected();
        machine.driver.fail({.call = Call::create, .nth = 1, .kind = kind});
        (void)arena.allocate(3_MiB);
        CHECK(machine.driver.injected() == failed + 1);
        CHECK(arena.usage().mapped_bytes == 68_MiB);
        CHECK(machine.driver.handle_bytes() == 68_MiB);
    }
}

TEST_CASE_FIXTURE(OnMachine, "the first byte of a chunk that small blocks share is not a block" * on_machines) {
    ArenaOf arena{machine.driver, "chunk"};
    void* const first = arena.allocate(256);
    void* const second = arena.allocate(256);
    arena.deallocate(first, already_idle);
    CHECK_THROWS_AS(arena.deallocate(first, already_idle), Misuse);
    arena.deallocate(second, already_idle);
    CHECK_THROWS_AS(arena.deallocate(first, already_idle), Misuse);
}
} // namespace arena_allocate_test
