// WorkspacePool: the state of a pool after driver calls fail while it grows or ends, and that it stays usable.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include "memsaver/graph/workspace_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace graph_workspace_sweep_test {

using namespace test;

namespace {

/// A pool with one workspace that is about to grow.
struct Growing {
    explicit Growing(bool on)
        : driver{driver_of(host_machine)}, saver{std::in_place, driver, SaverOptions{.enabled = on}} {
        pool.emplace(saver->arena("workspace"), WorkspacePoolOptions{.cap = 32_MiB});
        address = pool->get("a", 2_MiB);
        write_pattern(driver, address, 2_MiB, 1);
    }
    Growing(Growing&&) = default;

    MachineDriver driver;
    std::optional<MemorySaver<MachineDriver>> saver;
    std::optional<WorkspacePool> pool;
    void* address = nullptr;
};

void check_after_failure(Growing& world, const SweepPoint& point, bool enabled) {
    CAPTURE(point.text());
    CHECK((point.error != nullptr || point.injected == 0 || world.pool->stats().mapped_bytes >= 12_MiB));
    check_books(*world.saver, world.driver);
    CHECK(has_pattern(world.driver, world.address, 2_MiB, 1));
    const WorkspaceStats stats = world.pool->stats();
    if (point.error != nullptr) CHECK(stats.names <= 2);
    CHECK(world.pool->get("a", 12_MiB) == world.address); // the same call continues
    void* const b = world.pool->get("b", 4_MiB, {.reuse = Reuse::zeroed, .group = "other"});
    CHECK(world.driver.drain().ok());
    CHECK(all_are(world.driver, b, 4_MiB, 0));
    CHECK(world.pool->stats().mapped_bytes == 16_MiB);
    (void)world.saver->pause();
    if (enabled) CHECK(world.driver.handle_bytes() == 0);
    (void)world.saver->resume();
    CHECK(world.pool->get("a", 14_MiB) == world.address);
    write_pattern(world.driver, world.address, 14_MiB, 2);
    CHECK(has_pattern(world.driver, world.address, 14_MiB, 2));
    check_books(*world.saver, world.driver);
    world.pool.reset();
    world.saver->close();
    world.saver.reset();
    check_given_back(world.driver);
}

} // namespace

TEST_CASE("growth with each driver call failing leaves everything as before, and can be repeated") {
    for (const bool enabled : {true, false}) {
        for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
            for (const StatusKind kind :
                 {StatusKind::other, StatusKind::out_of_memory, StatusKind::out_of_host_memory}) {
                const auto points = sweep(
                    {.lasting = lasting, .kind = kind}, [&] { return Growing{enabled}; },
                    [](Growing& world) {
                        (void)world.pool->get("a", 12_MiB);
                        (void)world.pool->get("b", 4_MiB, {.reuse = Reuse::zeroed, .group = "other"});
                    },
                    [&](Growing& world, const SweepPoint& point) { check_after_failure(world, point, enabled); });
                CHECK(points >= 7);
            }
        }
    }
}

TEST_CASE("a pool's end with each driver call failing throws nothing, and `close` releases the rest") {
    for (const bool enabled : {true, false}) {
        for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
            (void)sweep(
                {.lasting = lasting}, [&] { return Growing{enabled}; }, [](Growing& world) { world.pool.reset(); },
                [&](Growing& world, const SweepPoint& point) {
                    CAPTURE(point.text());
                    CHECK(point.error == nullptr);
                    check_books(*world.saver, world.driver);
                    world.saver->close();
                    world.saver.reset();
                    check_given_back(world.driver);
                });
        }
    }
}

TEST_CASE("pages that a failed growth could not release do no harm once they can be released") {
    for (const bool dies : {false, true}) {
        Growing world{true};
        world.driver.fail({.call = Call::allow_access});
        world.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
        CHECK_THROWS_AS((void)world.pool->get("a", 12_MiB), DriverError);
        CHECK(row_of(*world.saver, "workspace").held_bytes == 10_MiB);
        check_books(*world.saver, world.driver);
        CHECK_THROWS_AS((void)world.pool->get("a", 4_MiB), DriverError); // the failure persists
        CHECK(world.driver.violations().empty());
        if (dies) {
            world.pool.reset();
            const Arena arena = world.saver->arena("workspace");
            arena.deallocate(arena.allocate(40_MiB)); // elsewhere: pages are mapped at the old addresses
            CHECK(world.driver.violations().empty());
        }
        world.driver.heal();
        if (!dies) {
            CHECK(world.pool->get("a", 12_MiB) == world.address);
            CHECK(row_of(*world.saver, "workspace").held_bytes == 0);
        }
        (void)world.saver->pause();
        (void)world.saver->resume();
        check_books(*world.saver, world.driver);
        {
            const Arena arena = world.saver->arena("workspace");
            void* const block = arena.allocate(40_MiB); // addresses are not assigned twice
            write_pattern(world.driver, block, 40_MiB, 3);
            arena.deallocate(block);
        }
        world.pool.reset();
        world.saver.reset();
        check_given_back(world.driver);
    }
}

TEST_CASE("pages that a failed growth could not release do not prevent a resume") {
    Growing world{true};
    (void)world.saver->pause();
    (void)world.pool->get("elsewhere", 2_MiB, {.group = "other"});
    world.driver.fail({.call = Call::allow_access});
    world.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
    CHECK_THROWS_AS((void)world.pool->get("elsewhere", 4_MiB), DriverError);
    CHECK_NOTHROW((void)world.saver->resume());
    check_books(*world.saver, world.driver);
    world.driver.heal();
    write_pattern(world.driver, world.pool->get("elsewhere", 4_MiB), 4_MiB, 1);
    world.pool.reset();
    world.saver.reset();
    check_given_back(world.driver);
}

} // namespace graph_workspace_sweep_test
