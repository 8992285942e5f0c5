// One arena without a saver: the typed form's additions to its core.
#include "support/bytes.hpp"
#include "support/deadline.hpp"
#include "support/held_stream.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace arena_tagged_arena_test {

using namespace test;

namespace {

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

} // namespace

TEST_CASE_FIXTURE(OnMachine, "an arena can be moved" * on_machines) {
    ArenaOf<> first{machine.driver, "moved"};
    void* const block = first.allocate(1_MiB);
    ArenaOf<> second{std::move(first)};
    CHECK(second.tag() == "moved");
    CHECK(second.driver() == machine.driver);
    second.deallocate(block);
    CHECK(second.usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnMachine, "after close every use is Misuse, and the device has its memory back" * on_machines) {
    ArenaOf<> arena{machine.driver, "closed"};
    void* const block = arena.allocate(1_MiB);
    (void)arena.pause();
    void* const other = arena.allocate(1_MiB);
    arena.close();
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(machine.driver.reserved_bytes() == 0);
    for (const std::string& text :
         {text_of<Misuse>([&] { (void)arena.allocate(1); }), text_of<Misuse>([&] { arena.deallocate(block); }),
          text_of<Misuse>([&] { arena.deallocate(other, already_idle); }),
          text_of<Misuse>([&] { (void)arena.pause(); }), text_of<Misuse>([&] { (void)arena.resume(); }),
          text_of<Misuse>([&] { (void)arena.trim(); }), text_of<Misuse>([&] { arena.invalidate(); })}) {
        CHECK(contains(text, "closed"));
    }
    CHECK(arena.usage().state == "closed");
    CHECK(arena.usage().mapped_bytes == 0);
    arena.close(); // again: a no-op
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

TEST_CASE_FIXTURE(OnMachine, "usage describes the arena" * on_machines) {
    ArenaOf<Zero> arena{machine.driver, "row", {}, {.capacity = 1_GiB}};
    (void)arena.allocate(1000);
    const ArenaUsage row = arena.usage();
    CHECK(row.tag == "row");
    CHECK(row.device == 0);
    CHECK(row.policy == "zero");
    CHECK(row.state == "active");
    CHECK(row.reserved_bytes >= row.mapped_bytes); // addresses are reserved in segments
    CHECK(row.mapped_bytes == 2_MiB);
    CHECK(row.used_bytes == 1000);
    CHECK(row.blocks == 1);
    CHECK(row.held_bytes == 0);
    CHECK(row.paused_bytes == 0);
    CHECK(row.backed_up_bytes == 0);
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
    std::vector<Event> told;
    ArenaOf<> arena{machine.driver, "growing", {}, {.capacity = 4_MiB, .events = [&](const Event& event) {
                                                        told.push_back(event);
                                                    }}};
    machine.driver.fail({.call = Call::allow_access});
    SUBCASE("still mapped") { machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards}); }
    SUBCASE("not released") { machine.driver.fail({.call = Call::release, .lasting = Lasting::onwards}); }
    CHECK_THROWS_AS((void)arena.allocate(4_MiB), DriverError);
    CHECK(arena.usage().held_bytes == 4_MiB);
    CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
    REQUIRE(told.size() == 1);
    CHECK(told[0].kind == EventKind::ignored);
    CHECK(told[0].tag == "growing");
    CHECK_THROWS_AS((void)arena.allocate(2_MiB), Misuse); // pages may still be mapped
    CHECK_THROWS_AS((void)arena.trim(), DriverError);
    CHECK(arena.usage().held_bytes == 4_MiB);
    machine.driver.heal();
    CHECK(arena.trim().released_bytes == 4_MiB);
    CHECK(arena.usage().held_bytes == 0);
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(arena.allocate(4_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "pages that cannot be released are held, counted and retried") {
    ArenaOf<Zero> arena{machine.driver, "held"};
    void* const block = arena.allocate(32_MiB);
    const std::size_t mapped = machine.driver.handle_bytes();

    SUBCASE("a release that fails: paused, held") {
        std::size_t held = 0;
        machine.driver.fail({.call = Call::release});
        try {
            (void)arena.pause();
            FAIL_CHECK("nothing was thrown");
        } catch (const DriverError& error) {
            CHECK(error.report().held_bytes > 0);
            CHECK(error.report().held_bytes + error.report().released_bytes == mapped);
            held = error.report().held_bytes;
            CHECK(error.status().code == Failure::injected_code);
        }
        CHECK(arena.usage().held_bytes == machine.driver.handle_bytes());
        CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
        CHECK(arena.usage().state == "paused");
        const auto check_finished = [&](const Report& report) {
            CHECK(report.released_bytes == held);
            CHECK(report.held_bytes == 0);
            REQUIRE(report.tags.size() == 1);
            CHECK(report.tags[0].tag == "held");
            CHECK(report.tags[0].released_bytes == held);
        };
        SUBCASE("by a pause, which then waits for no work") {
            const HeldStream busy{host_of(machine.driver)};
            check_finished(arena.pause());
            CHECK(arena.pause().tags.empty());
        }
        SUBCASE("not by a resume, which takes them as they are") {
            const Report report = arena.resume();
            CHECK(report.released_bytes == 0);
            CHECK(report.held_bytes == 0);
            CHECK(report.mapped_bytes == mapped - held);
            CHECK(machine.driver.handle_bytes() == mapped);
            (void)arena.pause();
        }
        SUBCASE("by a trim") { check_finished(arena.trim()); }
        CHECK(arena.usage().held_bytes == 0);
        CHECK(machine.driver.handle_bytes() == 0);
    }
    SUBCASE("an unmap that fails: paused, held") {
        machine.driver.fail({.call = Call::unmap});
        CHECK_THROWS_AS((void)arena.pause(), DriverError);
        CHECK(arena.usage().state == "paused");
        CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
        CHECK(arena.usage().held_bytes == machine.driver.handle_bytes());
        SUBCASE("taken back by a resume") {
            (void)arena.resume();
            CHECK(arena.usage().held_bytes == 0);
        }
        SUBCASE("released by a pause") { CHECK(arena.pause().released_bytes != 0); }
        (void)arena.pause();
        CHECK(machine.driver.handle_bytes() == 0);
    }
    (void)arena.resume();
    CHECK(all_are(machine.driver, block, 1_MiB, 0));
}

TEST_CASE_FIXTURE(OnMachine, "the completed part of a failed pause is counted") {
    ArenaOf<HostBackup> arena{machine.driver, "counted"};
    void* const block = arena.allocate(8_MiB);
    write_pattern(machine.driver, block, 8_MiB, 1);
    machine.driver.fail({.call = Call::release});
    CHECK_THROWS_AS((void)arena.pause(), DriverError);
    CHECK(arena.usage().pauses == 1);
    machine.driver.fail({.call = Call::copy_to_device});
    CHECK_THROWS_AS((void)arena.resume(), DriverError);
    (void)arena.resume();
    CHECK(arena.usage().pauses == 1);
    CHECK(has_pattern(machine.driver, block, 8_MiB, 1));
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

TEST_CASE("an arena whose destructor fails to release reports it to its sink") {
    const Checked machine{host_machine};
    std::vector<Event> told;
    {
        ArenaOf<> arena{machine.driver, "dying", {}, {.events = [&](const Event& event) { told.push_back(event); }}};
        (void)arena.allocate(2_MiB);
        machine.driver.fail({.call = Call::drain});
    }
    CHECK(!told.empty());
    if (!told.empty()) CHECK(told.front().kind == EventKind::ignored);
}

TEST_CASE("an event sink that begins an operation on its arena within another gets Misuse") {
    CHECK(within_seconds(60, [] {
        TaggedArena<HostDriver, HostBackup>* self = nullptr;
        int refused = 0;
        int events = 0;
        TaggedArena arena{HostDriver{64_MiB}, "a", HostBackup{}, {.events = [&](const Event& event) {
                              if (self == nullptr || event.kind != EventKind::began) return;
                              ++events;
                              try {
                                  (void)self->trim();
                              } catch (const Misuse& error) {
                                  refused += contains(error.what(), "inside an operation") ? 1 : 0;
                              }
                          }}};
        (void)arena.allocate(1_MiB);
        self = &arena;
        (void)arena.pause();
        (void)arena.resume();
        self = nullptr;
        return events == 2 && refused == 2;
    }));
}

} // namespace arena_tagged_arena_test
