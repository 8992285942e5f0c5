// Resuming an arena: same addresses, correct bytes, all or nothing.
#include "memsaver/arena/arena.hpp"
#include "support/machines.hpp"

namespace arena_resume_test {
using namespace test;

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

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
} // namespace arena_resume_test
