// Paused memory behind which stray reads find pages, for programs that ask for it.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

namespace saver_quarantine_test {

using namespace test;

TEST_CASE_TEMPLATE("quarantine: reads of paused memory pass, and nothing else changes", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    {
        MemorySaver saver{machine.driver, {.quarantine = Quarantine{.block_bytes = 8_MiB}}};
        const Arena kept = saver.arena("kept", HostBackup{.threads = 2});
        const Arena dropped = saver.arena("dropped");
        void* const first = kept.allocate(21_MiB);
        void* const second = dropped.allocate(3_MiB);
        write_pattern(machine.driver, first, 21_MiB, 1);
        for (int cycle = 0; cycle < 3; ++cycle) {
            (void)saver.pause();
            CHECK(row_of(saver, "kept").mapped_bytes == 0);
            CHECK(row_of(saver, "quarantine").mapped_bytes <= 16_MiB);
            check_books(saver, machine.driver);
            (void)read_bytes(machine.driver, first, 21_MiB);
            (void)read_bytes(machine.driver, second, 3_MiB);
            (void)saver.resume("dropped"); // the blocks stay for the other tag
            write_pattern(machine.driver, second, 3_MiB, 2);
            CHECK(has_pattern(machine.driver, second, 3_MiB, 2));
            (void)saver.resume();
            CHECK(has_pattern(machine.driver, first, 21_MiB, 1));
            for (const ArenaUsage& row : saver.usage()) CHECK(row.tag != "quarantine"); // given back with the last
            check_books(saver, machine.driver);
        }
        (void)saver.pause();
        saver.deallocate(first); // while quarantined
        (void)saver.resume();
        (void)saver.trim();
        (void)saver.pause();
    } // ends while paused
}

TEST_CASE_TEMPLATE("quarantine: allocations go on beside it", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver, {.quarantine = Quarantine{}}};
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1});
    void* const before = arena.allocate(5_MiB);
    write_pattern(machine.driver, before, 5_MiB, 1);
    (void)saver.pause();
    void* const meanwhile = arena.allocate(5_MiB);
    write_pattern(machine.driver, meanwhile, 5_MiB, 2);
    (void)saver.pause(); // both are away now, in two batches
    (void)saver.resume();
    CHECK(has_pattern(machine.driver, before, 5_MiB, 1));
    CHECK(has_pattern(machine.driver, meanwhile, 5_MiB, 2));
}

TEST_CASE_TEMPLATE("quarantine: shared memory that could not be given back goes with the next trim", M,
                   MEMSAVER_TEST_QUICK_MACHINE) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver, {.quarantine = Quarantine{}}};
    (void)saver.arena("tag").allocate(5_MiB);
    const auto shared = [&] {
        std::size_t bytes = 0;
        for (const ArenaUsage& row : saver.usage()) bytes += row.tag == "quarantine" ? row.mapped_bytes : 0;
        return bytes;
    };
    (void)saver.pause();
    machine.driver.fail({.call = Call::release});
    (void)saver.resume();
    REQUIRE(machine.driver.injected() == 1);
    CHECK(shared() != 0);
    (void)saver.trim();
    CHECK(shared() == 0);
}

TEST_CASE_TEMPLATE("quarantine: whatever call fails, bytes come back", M, MEMSAVER_TEST_QUICK_MACHINE) {
    struct World {
        explicit World(typename M::Driver d)
            : driver{std::move(d)}, saver{std::in_place, driver,
                                          SaverOptions{.quarantine = Quarantine{.block_bytes = 4_MiB}}},
              block{saver->arena("tag", HostBackup{.threads = 1}).allocate(7_MiB)} {
            write_pattern(driver, block, 7_MiB, 3);
        }
        typename M::Driver driver;
        std::optional<MemorySaver<typename M::Driver>> saver;
        void* block;
    };
    for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
        const std::uint64_t points = sweep(
            {.lasting = lasting}, [] { return World{M::driver()}; },
            [](World& world) {
                (void)world.saver->pause();
                (void)world.saver->resume();
            },
            [](World& world, const SweepPoint& point) {
                CAPTURE(point.text());
                CHECK_NOTHROW((void)world.saver->resume());
                CHECK(has_pattern(world.driver, world.block, 7_MiB, 3));
                CHECK_NOTHROW((void)world.saver->pause());
                CHECK_NOTHROW((void)world.saver->resume());
                CHECK(has_pattern(world.driver, world.block, 7_MiB, 3));
                world.saver.reset();
                CHECK(world.driver.handle_bytes() == 0);
                CHECK(world.driver.outstanding().mappings == 0);
                CHECK(world.driver.violations().empty());
            });
        CHECK(points > 10);
    }
}

TEST_CASE_TEMPLATE("quarantine: closing while it cannot be ended keeps the addresses, and goes on later", M,
                   MEMSAVER_TEST_QUICK_MACHINE) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver, {.quarantine = Quarantine{}}};
    (void)saver.arena("paused").allocate(8_MiB);
    (void)saver.pause();
    machine.driver.fail({.call = Call::unmap});
    CHECK_THROWS_AS(saver.close(), DriverError);
    CHECK(machine.driver.violations().empty());
    CHECK_NOTHROW(saver.close());
    CHECK(machine.driver.handle_bytes() == 0);
}

} // namespace saver_quarantine_test
