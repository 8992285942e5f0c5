// Resuming an arena: same addresses, correct bytes, all or nothing.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace arena_resume_test {

using namespace test;

namespace {

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

} // namespace

TEST_CASE_FIXTURE(OnMachine, "neighbours are resumed behind one handle" * on_machines) {
    ArenaOf<> arena{machine.driver, "joined"};
    for (int i = 0; i < 32; ++i) (void)arena.allocate(2_MiB);
    CHECK(machine.driver.outstanding().handles > 1);
    (void)arena.pause();
    (void)arena.resume();
    CHECK(machine.driver.outstanding().handles == 1);
}

TEST_CASE_FIXTURE(OnMachine, "extents without live blocks are not resumed" * on_machines) {
    ArenaOf<> arena{machine.driver, "dropped"};
    void* const kept = arena.allocate(32_MiB);
    void* const freed = arena.allocate(32_MiB);
    void* const freed_before = arena.allocate(32_MiB);
    arena.deallocate(freed_before);
    (void)arena.pause();
    arena.deallocate(freed);
    CHECK(arena.bytes_to_resume() == 32_MiB);
    CHECK(arena.resume().mapped_bytes == 32_MiB);
    CHECK(machine.driver.handle_bytes() == 32_MiB);
    write_pattern(machine.driver, kept, 32_MiB, 1);
    // The dropped memory is capacity again.
    for (int i = 0; i < 3; ++i) write_pattern(machine.driver, arena.allocate(32_MiB), 32_MiB, 2);
    CHECK(has_pattern(machine.driver, kept, 32_MiB, 1));
}

TEST_CASE_FIXTURE(OnMachine, "freeing everything while paused leaves nothing to resume" * on_machines) {
    ArenaOf<> arena{machine.driver, "all freed"};
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 100; ++i) blocks.push_back(arena.allocate(1000 * (i + 1)));
    (void)arena.pause();
    for (void* const block : blocks) arena.deallocate(block);
    CHECK(arena.bytes_to_resume() == 0);
    CHECK(arena.resume().mapped_bytes == 0);
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(arena.usage().state == "empty");
    CHECK(arena.usage().paused_bytes == 0);
}

TEST_CASE_FIXTURE(OnMachine, "freeing one of two while paused, then resuming, keeps the other" * on_machines) {
    for (const std::size_t bytes : {std::size_t{4'000}, std::size_t{1_MiB}, std::size_t{20_MiB}}) {
        ArenaOf<Zero> arena{machine.driver, "pair"};
        void* const first = arena.allocate(bytes);
        void* const second = arena.allocate(bytes);
        (void)arena.pause();
        arena.deallocate(first);
        CHECK_THROWS_AS(arena.deallocate(first), Misuse);
        (void)arena.resume();
        CHECK(all_are(machine.driver, second, bytes, 0));
        CHECK(arena.usage().blocks == 1);
        void* const third = arena.allocate(bytes);
        write_pattern(machine.driver, third, bytes, 3);
        CHECK(all_are(machine.driver, second, bytes, 0));
        arena.deallocate(second);
    }
}

TEST_CASE_FIXTURE(OnMachine, "no memory: nothing changes, and with memory the call succeeds" * on_machines) {
    ArenaOf<Zero> arena{machine.driver, "no room"};
    void* const first = arena.allocate(100_MiB);
    void* const second = arena.allocate(100_MiB);
    (void)arena.pause();
    void* const active = arena.allocate(4_MiB);
    write_pattern(machine.driver, active, 4_MiB, 4);
    const std::size_t need = arena.bytes_to_resume();
    const std::size_t mapped = machine.driver.handle_bytes();
    {
        const Ballast ballast{machine.driver, 120_MiB};
        const std::size_t free = machine.free_bytes();
        for (int i = 0; i < 3; ++i) {
            try {
                (void)arena.resume();
                FAIL_CHECK("there was room");
            } catch (const OutOfMemory& error) {
                CHECK(error.needed_bytes() == need);
                CHECK(about(error.free_bytes(), free));
            }
            CHECK(machine.driver.handle_bytes() == mapped);
            CHECK(arena.usage().mapped_bytes == mapped);
            CHECK(arena.usage().state == "partly paused");
            CHECK(arena.bytes_to_resume() == need);
            CHECK(has_pattern(machine.driver, active, 4_MiB, 4));
        }
    }
    CHECK(arena.resume().mapped_bytes == need);
    CHECK(all_are(machine.driver, first, 4_MiB, 0));
    CHECK(all_are(machine.driver, second, 4_MiB, 0));
    CHECK(has_pattern(machine.driver, active, 4_MiB, 4));
}

TEST_CASE_FIXTURE(OnMachine, "all memory is taken before any is mapped or filled" * on_machines) {
    ArenaOf<Zero> arena{machine.driver, "order"};
    std::vector<void*> blocks; // not adjacent, so that they are not restored behind one handle
    for (int i = 0; i < 6; ++i) blocks.push_back(arena.allocate(32_MiB));
    for (std::size_t i = 0; i < blocks.size(); i += 2) arena.deallocate(blocks[i], already_idle);
    (void)arena.pause();
    std::vector<Call> calls;
    machine.driver.on_call([&](const CallRecord& made) { calls.push_back(made.call); });
    (void)arena.resume();
    machine.driver.on_call({});
    int stage = 0;
    for (const Call call : calls) {
        const int now = call == Call::create ? 1 : call == Call::map ? 2 : call == Call::fill ? 3 : 0;
        if (now == 0) continue;
        CHECK(now >= stage);
        stage = now;
    }
    CHECK(stage == 3);
    CHECK(machine.driver.outstanding().handles >= 3);
}

TEST_CASE_FIXTURE(OnMachine, "after a resume every stream sees the bytes" * on_machines) {
    ArenaOf<Zero> arena{machine.driver, "visible"};
    void* const block = arena.allocate(16_MiB);
    (void)arena.pause();
    (void)arena.resume();
    for (int i = 0; i < 3; ++i) CHECK(all_are(machine.driver, block, 16_MiB, 0)); // each on its own stream
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
