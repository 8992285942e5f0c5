// Operations of graphs and of workspace pools.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> graphs() {
    // Fills a block that stays, and one that is freed in the capture.
    const auto body = [](Populated& world, unsigned char byte, void*& made, int times = 1) {
        void* const fresh = world.saver->allocate(16_KiB);
        void* const scratch = world.saver->allocate(25'000);
        for (int i = 0; i < times; ++i) fill_on(world.driver, fresh, 16_KiB, byte, world.stream);
        fill_on(world.driver, scratch, 25'000, byte, world.stream);
        world.saver->deallocate(scratch);
        made = fresh;
    };
    const auto captured = [body](Populated& world) {
        world.counted = false;
        world.graph = capture(*world.saver, "swept", world.stream, [&] { body(world, 1, world.filled); });
    };
    const auto replays = [](Populated& world, const Graph& graph, const void* at, unsigned char byte) {
        graph.launch(world.stream);
        REQUIRE(world.driver.drain().ok());
        CHECK(filled_with(at, 16_KiB, byte));
    };
    const auto one_works = [replays](Populated& world) { replays(world, world.graph, world.filled, 1); };
    // If the call that ends a capture fails permanently, the capture stays open until the program ends it.
    const auto end_capture = [](Populated& world) {
        bool open = false;
        REQUIRE(world.driver.capturing(world.stream, open).ok());
        GraphRef graph;
        if (open) CHECK(world.driver.injected(Call::end_capture) > 0);
        if (open && world.driver.end_capture(world.stream, graph).ok()) CHECK(world.driver.close_graph(graph).ok());
    };
    const auto update = [body](int times) {
        return [=](Populated& world) {
            world.graph.update(world.stream, [&] { body(world, 3, world.refilled, times); });
            world.filled = world.refilled;
        };
    };
    const auto updated = [replays](Populated& world) { replays(world, world.graph, world.filled, 3); };
    const auto capture_in = [body](CaptureMode mode) {
        return [=](Populated& world) {
            world.another =
                capture(*world.saver, "swept", world.stream, {.mode = mode}, [&] { body(world, 2, world.refilled); });
        };
    };
    const auto both_work = [=](Populated& world) {
        one_works(world);
        replays(world, world.another, world.refilled, 2);
    };
    return {
        {"capture", captured, capture_in(CaptureMode::global), both_work, About::swept, end_capture},
        {"capture: in mode thread_local", captured, capture_in(CaptureMode::thread_local_), both_work, About::swept,
         end_capture},
        {"capture: in mode relaxed", captured, capture_in(CaptureMode::relaxed), both_work, About::swept, end_capture},
        {"capture: while the tag is paused",
         [](Populated& world) {
             world.counted = false;
             world.pause("swept");
         },
         captured, all_of(resume_swept, one_works), About::swept, end_capture},
        {"capture: into a new tag", nothing,
         [body](Populated& world) {
             world.graph = capture(*world.saver, "captured", world.stream, [&] { body(world, 1, world.filled); });
         },
         one_works, About::swept, end_capture},
        {"Graph::launch", captured, [](Populated& world) { world.graph.launch(world.stream); }, one_works},
        {"Graph::update: in place", captured, update(1), updated, About::swept, end_capture},
        {"Graph::update: by another", captured, update(3), updated, About::swept, end_capture},
        {"~Graph", captured, [](Populated& world) { world.graph.reset(); },
         [](Populated& world) { CHECK_NOTHROW(world.saver->deallocate(world.filled)); }},
        {"~Graph: paused", all_of(captured, pause_swept), [](Populated& world) { world.graph.reset(); }, nothing},
    };
}

inline std::vector<Operation> workspaces() {
    const auto with_pool = [](Populated& world) {
        world.counted = false;
        world.pool.emplace(world.saver->arena("swept"), WorkspacePoolOptions{.cap = 1_MiB});
        world.filled = world.pool->get("a", 25'000);
        std::memset(world.filled, 1, 25'000);
    };
    const auto kept = [](Populated& world) { CHECK(filled_with(world.filled, 25'000, 1)); };
    return {
        {"WorkspacePool::get: a new place", with_pool,
         [](Populated& world) { (void)world.pool->get("b", 17'500, {.group = "other"}); }, kept},
        {"WorkspacePool::get: growth", with_pool,
         [](Populated& world) {
             void* const grown = world.pool->get("a", 225'000);
             CHECK(grown == world.filled);
         },
         [kept](Populated& world) {
             kept(world);
             std::memset(static_cast<char*>(world.filled) + 25'000, 2, 200'000);
         }},
        {"WorkspacePool::get: zeroed", with_pool,
         [](Populated& world) {
             world.refilled = world.pool->get("c", 17'500, {.reuse = Reuse::zeroed, .stream = world.stream});
         },
         [](Populated& world) {
             REQUIRE(world.driver.drain().ok());
             CHECK(filled_with(world.refilled, 17'500, 0));
         }},
        {"WorkspacePool::get: a new place while the tag is paused", all_of(with_pool, pause_swept),
         [](Populated& world) {
             world.refilled = world.pool->get("b", 17'500, {.group = "other"});
             std::memset(world.refilled, 2, 17'500);
         },
         is_in("partly paused")},
        {"WorkspacePool::lend: and a name in what was lent",
         [with_pool](Populated& world) {
             with_pool(world);
             world.refilled = world.saver->arena("swept").allocate(50'000);
         },
         [](Populated& world) {
             if (world.pool->stats().lent_bytes == 0) {
                 std::optional<Unmetered> own{std::in_place};
                 std::shared_ptr<void> memory{world.refilled, [](void*) {}};
                 own.reset();
                 world.pool->lend(world.saver->arena("swept"), std::move(memory), 50'000, "lent");
             }
             const WorkspaceOptions options{
                 .cap = 37'500, .reuse = Reuse::zeroed, .stream = world.stream, .group = "lent"};
             void* const got = world.pool->get("l", 22'500, options);
             CHECK(got == world.refilled);
         },
         [kept](Populated& world) {
             kept(world);
             REQUIRE(world.driver.drain().ok());
             CHECK(filled_with(world.refilled, 22'500, 0));
         }},
        {"~WorkspacePool", with_pool, [](Populated& world) { world.pool.reset(); }, nothing},
        {"~WorkspacePool: paused", all_of(with_pool, pause_swept), [](Populated& world) { world.pool.reset(); },
         nothing},
    };
}
} // namespace test
