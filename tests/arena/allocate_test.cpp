// Allocating from an arena: sizes, alignments, growth, and refused requests.
#include "support/machines.hpp"

namespace arena_allocate_test {
using namespace test;
using ArenaOf = TaggedArena<MachineDriver>;

TEST_CASE_FIXTURE(OnMachine, "what can never be is refused, and the arena stays usable" * on_machines) {
    ArenaOf arena{machine.driver, "strict", {}, {.capacity = 64_MiB}};
    check_says<Misuse>("strict", [&] { (void)arena.allocate(0); });
    check_says<Misuse>("capacity", [&] { (void)arena.allocate(static_cast<std::size_t>(-4096)); });
    check_says<Misuse>("alignment is 0", [&] { (void)arena.allocate(1_MiB, 0); });
    check_says<Misuse>("power of two", [&] { (void)arena.allocate(1_MiB, 768); });
    check_says<Misuse>("more than 1 GiB", [&] { (void)arena.allocate(1_MiB, std::size_t{1} << 63U); });
    void* const most = arena.allocate(60_MiB);
    check_says<Misuse>("tag \"strict\": 8.00 MiB more would exceed its capacity of 64.00 MiB",
                       [&] { (void)arena.allocate(8_MiB); });
    CHECK(arena.usage().blocks == 1);
    arena.deallocate(most, already_idle);
    CHECK(arena.allocate(8_MiB) != nullptr);
}

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
