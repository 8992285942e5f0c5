// WorkspacePool: pages that a failed growth could not release (failure/operations_graphs.hpp has the other failures).
#include "support/machines.hpp"

namespace graph_workspace_sweep_test {
using namespace test;

/// A pool with one workspace that is about to grow.
struct Growing {
    Growing() : driver{driver_of(host_machine)}, saver{std::in_place, driver} {
        pool.emplace(saver->arena("workspace"), WorkspacePoolOptions{.cap = 32_MiB});
        address = pool->get("a", 2_MiB);
        write_pattern(driver, address, 2_MiB, 1);
    }

    MachineDriver driver;
    std::optional<MemorySaver<MachineDriver>> saver;
    std::optional<WorkspacePool> pool;
    void* address = nullptr;
};

TEST_CASE("pages that a failed growth could not release do no harm once they can be released") {
    for (const bool dies : {false, true}) {
        Growing world;
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
        pause_and_resume(*world.saver);
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
    Growing world;
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
