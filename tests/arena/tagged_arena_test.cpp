// One arena without a saver: the typed form's additions to its core.
#include "support/machines.hpp"

namespace arena_tagged_arena_test {
using namespace test;

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

static_assert(!std::is_copy_constructible_v<TaggedArena<HostDriver>>, "two would close one another");

TEST_CASE_FIXTURE(OnMachine, "an arena can be moved" * on_machines) {
    ArenaOf<> first{machine.driver, "moved"};
    void* const block = first.allocate(1_MiB);
    ArenaOf<> second{std::move(first)};
    CHECK(second.tag() == "moved");
    CHECK(second.driver() == machine.driver);
    second.deallocate(block);
    CHECK(second.usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnMachine, "impossible options are Misuse, and leave nothing behind" * on_machines) {
    CHECK_THROWS_AS((ArenaOf<>{machine.driver, "x", {}, {.capacity = ~std::size_t{0}}}), Misuse);
    CHECK_THROWS_AS((ArenaOf<>{machine.driver, "x", {}, {.capacity = 4_MiB, .reserve = 8_MiB}}), Misuse);
    CHECK_THROWS_AS((ArenaOf<>{machine.driver, "x", {}, {.capacity = 8_GiB, .reserve = ~std::size_t{0} - 5}}), Error);
    CHECK(machine.driver.everything_given_back());
    {
        const std::size_t free = machine.free_bytes();
        CHECK_THROWS_AS((ArenaOf<>{machine.driver, "x", {}, {.reserve = free + 64_MiB}}), OutOfMemory);
    }
    CHECK(machine.driver.everything_given_back());
}

TEST_CASE("the capacity counts pages; by default there is no limit, and no address is reserved" * on_machines) {
    const Checked machine;
    ArenaOf<> odd{machine.driver, "odd", {}, {.capacity = 3_MiB}};
    (void)odd.allocate(2_MiB);
    CHECK_THROWS_AS((void)odd.allocate(1_MiB), Misuse);
    CHECK(odd.usage().mapped_bytes == 2_MiB);
    ArenaOf<> by_default{machine.driver, "by default"};
    CHECK(by_default.usage().reserved_bytes == 0);
    CHECK(machine.driver.handle_bytes() == 2_MiB);
}

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

TEST_CASE("a lost device: close works, and reports are true") {
    const HostDriver host{2_GiB};
    const MachineDriver driver{host};
    TaggedArena<MachineDriver> arena{driver, "lost"};
    void* const block = arena.allocate(2_MiB);
    host.lose();
    CHECK_THROWS_AS((void)arena.pause(), DeviceLost);
    CHECK_THROWS_AS((void)arena.allocate(64_MiB), DeviceLost);
    CHECK_NOTHROW(arena.deallocate(block));
    CHECK_NOTHROW(arena.close());
    CHECK_THROWS_AS((void)arena.allocate(1), Misuse);
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

TEST_CASE("an event sink that begins an operation on its arena within another gets Misuse") {
    CHECK(within_seconds(60, [] {
        TaggedArena<HostDriver, HostBackup>* self = nullptr;
        int refused = 0;
        int events = 0;
        const auto sink = [&](const Event& event) {
            if (self == nullptr || event.kind != EventKind::began) return;
            ++events;
            refused += contains(text_of<Misuse>([&] { (void)self->trim(); }), "inside an operation") ? 1 : 0;
        };
        TaggedArena arena{HostDriver{64_MiB}, "a", HostBackup{}, {.events = sink}};
        (void)arena.allocate(1_MiB);
        self = &arena;
        pause_and_resume(arena);
        self = nullptr;
        return events == 2 && refused == 2;
    }));
}

TEST_CASE("an event sink that makes its arena grow while a growth fails gets Misuse") {
    CHECK(within_seconds(60, [] {
        const MachineDriver driver{HostDriver{64_MiB}};
        TaggedArena<MachineDriver>* self = nullptr;
        int refused = 0;
        int events = 0;
        const auto sink = [&](const Event&) {
            ++events;
            refused += contains(text_of<Misuse>([&] { (void)self->allocate(1_MiB); }), "inside an operation") ? 1 : 0;
        };
        TaggedArena<MachineDriver> arena{driver, "a", {}, {.events = sink}};
        self = &arena;
        driver.fail({.call = Call::allow_access});
        driver.fail({.call = Call::release, .lasting = Lasting::onwards});
        const void* const block =
            arena.allocate(4_MiB); // tried again, because the sink's call looked for unused memory
        driver.heal();
        return block != nullptr && events == 1 && refused == 1;
    }));
}
} // namespace arena_tagged_arena_test
