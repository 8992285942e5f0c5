// A child forked while other threads are in operations inherits locked mutexes: it is refused anyway, and destroys its
// copies. An alarm ends a deadlock.
#include "graph/graph_support.hpp"
#include "process/process_support.hpp"

namespace graph_fork_test {
using namespace test;
using process_test::Child;
using D = MachineDriver;

/// Objects that a child may use and destroy.
struct World {
    D driver = driver_of(host_machine);
    std::optional<MemorySaver<D>> saver{std::in_place, driver};
    Arena arena = saver->arena("workspace");
    std::optional<WorkspacePool> pool{std::in_place, arena};
    std::shared_ptr<void> lent{arena.allocate(1_MiB), [](void*) {}};
    std::unique_ptr<Region> region{new Region{saver->region("workspace")}};
    Hook hook = saver->after_pause([](PauseEvent&) {});
    OwnStream<D> stream{driver};
    Graph graph = capture(*saver, "captured", stream, [] {});

    /// Returns 0 if everything is refused and destroying everything reports nothing.
    int child() {
        ::alarm(20);
        int wrong = 0;
        for (const std::function<void()>& use : std::vector<std::function<void()>>{
                 [&] { (void)pool->get("a", 1_MiB); }, [&] { (void)pool->stats(); },
                 [&] { pool->lend(arena, lent, 1_MiB); }, [&] { (void)saver->before_pause([](PauseEvent&) {}); },
                 [&] { (void)saver->allocate(1); }, [&] { (void)saver->region("workspace"); },
                 [&] { (void)saver->pause(); }, [&] { (void)saver->resume(); }, [&] { (void)saver->trim(); },
                 [&] { saver->close(); }, [&] { (void)capture(*saver, "graph", stream, [] {}); },
                 [&] { graph.launch(stream); }, [&] { arena.deallocate(lent.get()); }})
            wrong += process_test::refused(use) ? 0 : 1;
        arena.deallocate_quietly(lent.get());
        graph.reset();
        hook = Hook{};
        region.reset();
        pool.reset();
        arena = Arena{};
        saver.reset();
        return wrong;
    }
};

TEST_CASE("fork: while a capture waits for a pause") {
    World world;
    Stuck pausing{world.driver, Call::record_device, [&] { (void)world.saver->pause(); }};
    Doing capturing{[&] { (void)capture(*world.saver, "graph", world.stream, [] {}); }};
    std::this_thread::sleep_for(std::chrono::milliseconds{100}); // until it most likely waits
    Child child{[&] { return world.child(); }};
    CHECK(child.wait() == 0);
    pausing.go_on();
    capturing.join();
}

TEST_CASE("fork: while threads begin regions, hooks and captures, and end them") {
    World world;
    std::atomic<bool> over{false};
    const auto again = [&](auto act) {
        return std::thread{[&over, act] {
            while (!over) act();
        }};
    };
    std::vector<std::thread> threads;
    threads.push_back(again([&] {
        const Region region = world.saver->region("workspace");
        const Hook hook = world.saver->before_pause([](PauseEvent&) {});
        world.saver->deallocate(world.saver->allocate(256), already_idle);
    }));
    threads.push_back(again([&] { (void)world.saver->trim({.order = already_idle}); })); // reads this thread's hooks
    threads.push_back(again([&] { (void)world.pool->stats(); }));
    for (int i = 0; i < 40; ++i) {
        Child child{[&] { return world.child(); }};
        CHECK(child.wait() == 0);
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
}
} // namespace graph_fork_test
