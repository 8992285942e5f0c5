// A saver of one tag, typed by driver and policy.
#include "support/machines.hpp"

namespace saver_tagged_arena_test {
using namespace test;

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

static_assert(!std::is_copy_constructible_v<TaggedArena<HostDriver>>, "two would close one another");

TEST_CASE_FIXTURE(OnMachine, "pages that a failed growth cannot release are held, reported, counted and retried") {
    Told told;
    ArenaOf<> arena{machine.driver, "growing", {}, {.capacity = 4_MiB, .events = told.sink()}};
    machine.driver.fail({.call = Call::allow_access});
    SUBCASE("still mapped") { machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards}); }
    SUBCASE("not released") { machine.driver.fail({.call = Call::release, .lasting = Lasting::onwards}); }
    CHECK_THROWS_AS((void)arena.allocate(4_MiB), DriverError);
    CHECK(arena.usage().held_bytes == 4_MiB);
    CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
    REQUIRE(told.of(EventKind::ignored).size() == 1);
    CHECK(told.of(EventKind::ignored)[0].tag == "growing");
    CHECK_THROWS_AS((void)arena.allocate(2_MiB), Misuse); // pages may still be mapped
    CHECK_THROWS_AS((void)arena.trim(), DriverError);
    CHECK(arena.usage().held_bytes == 4_MiB);
    machine.driver.heal();
    CHECK(arena.trim().released_bytes == 4_MiB);
    CHECK(arena.usage().held_bytes == 0);
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(arena.allocate(4_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "a resume without room releases the arena's own empty extents, once" * on_quick) {
    ArenaOf<Zero> arena{machine.driver, "alone"};
    void* const block = arena.allocate(200_MiB);
    (void)arena.pause();
    arena.deallocate(arena.allocate(400_MiB), already_idle);
    {
        const Ballast ballast{machine.driver, 64_MiB};
        CHECK(arena.resume().mapped_bytes == 200_MiB);
        CHECK(machine.driver.handle_bytes() == 200_MiB);
        (void)arena.pause();
    }
    const Ballast ballast{machine.driver, 64_MiB};
    CHECK_THROWS_AS((void)arena.resume(), OutOfMemory); // nothing to release
    CHECK(machine.driver.handle_bytes() == 0);
    arena.deallocate(block);
}

TEST_CASE_FIXTURE(OnMachine, "an arena whose destructor fails to release reports it to its sink") {
    Told told;
    {
        ArenaOf<> arena{machine.driver, "dying", {}, {.events = told.sink()}};
        (void)arena.allocate(2_MiB);
        machine.driver.fail({.call = Call::drain});
    }
    CHECK(!told.texts().empty());
}

TEST_CASE_FIXTURE(OnMachine, "a resume of nothing that releases held pages reports it") {
    ArenaOf<> arena{machine.driver, "held"};
    void* const kept = arena.allocate(2_MiB);
    arena.deallocate(arena.allocate(32_MiB), already_idle);
    machine.driver.fail({.call = Call::release});
    CHECK_THROWS_AS((void)arena.trim(), DriverError);
    const std::size_t held = arena.usage().held_bytes;
    CHECK(held == 32_MiB);
    const Report report = arena.resume();
    CHECK(report.released_bytes == held);
    CHECK(report.mapped_bytes == 0);
    CHECK(arena.usage().held_bytes == 0);
    CHECK(arena.resume().tags.empty());
    arena.deallocate(arena.allocate(32_MiB), already_idle);
    arena.deallocate(kept);
}

TEST_CASE_FIXTURE(OnMachine, "a reserve may be as large as the capacity") {
    ArenaOf<> arena{machine.driver, "full", Discard{}, {.capacity = 4_MiB, .reserve = 4_MiB}};
    CHECK(arena.usage().mapped_bytes == 4_MiB);
}
} // namespace saver_tagged_arena_test
