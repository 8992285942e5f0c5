// The operations of the public interface, in groups of which each is swept by a file of its own.
#pragma once

#include "failure/sweeping.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace test {

using About = Operation::About;

inline std::string state_of(Populated& world, const char* tag = "swept") { return row_of(*world.saver, tag).state; }

inline ArenaOptions options_of(std::size_t capacity, std::size_t reserve = 0) {
    ArenaOptions options;
    options.capacity = capacity;
    options.reserve = reserve;
    return options;
}

inline void pause_swept(Populated& world) { world.pause("swept"); }

/// Paused in two goes, with something active, a large hole and a small one.
inline void paused_in_batches(Populated& world) {
    world.allocate("swept", 1_MiB);
    world.pause("swept");
    world.allocate("swept", 90'000);
    world.pause("swept");
    world.deallocate(4);
    world.deallocate(1);
    world.allocate("swept", 40'000);
}

inline std::vector<Operation> allocating() {
    const auto grown = [](Populated& world) { CHECK(world.tags["swept"].blocks.size() == 5); };
    return {
        {"arena: a new tag and its first block", nothing,
         [](Populated& world) {
             const Arena arena = world.saver->arena("new", world.policy.policy, options_of(8_MiB, 128_KiB));
             void* const block = arena.allocate(70'000);
             world.tags["new"].becomes = world.policy.becomes;
             world.add("new", block, 70'000);
         },
         [](Populated& world) { CHECK(row_of(*world.saver, "new").blocks == 1); }},
        {"allocate: growing", nothing, [](Populated& world) { world.allocate("swept", 1_MiB + 5); }, grown},
        {"region: a small block", nothing,
         [](Populated& world) {
             const auto region = world.saver->region("swept");
             world.add("swept", world.saver->allocate(3000), 3000);
         },
         grown},
        {"allocate: while the tag is paused", pause_swept, [](Populated& world) { world.allocate("swept", 80'000); },
         [](Populated& world) { CHECK(state_of(world) == "partly paused"); }},
        {"allocate: what waits to be used again",
         [](Populated& world) {
             const Arena arena = world.saver->arena("tight", world.policy.policy, options_of(256_KiB));
             world.filled = arena.allocate(256_KiB);
             arena.deallocate(world.filled);
             world.tags["tight"].becomes = world.policy.becomes;
         },
         [](Populated& world) { world.allocate("tight", 192_KiB); },
         [](Populated& world) { CHECK(world.tags["tight"].blocks.at(0).at == world.filled); }},
        {"outside: plain memory", nothing,
         [](Populated& world) {
             const auto out = world.saver->outside();
             if (world.filled == nullptr) world.filled = world.saver->allocate(3000);
             world.saver->deallocate(world.filled);
             world.filled = nullptr;
         },
         nothing},
        {"Buffer: its life", nothing,
         [](Populated& world) {
             Buffer<int>{world.saver->arena("swept"), 20'000}.reset();
         },
         nothing},
        {"TaggedArena: its life", nothing,
         [](Populated& world) {
             if (!world.alone) world.alone.emplace(world.driver, "alone", HostBackup{.threads = 1}, options_of(1_MiB));
             if (world.filled == nullptr) world.filled = world.alone->allocate(100'000);
             (void)world.alone->pause();
             (void)world.alone->resume();
             world.alone->deallocate(world.filled);
             world.filled = nullptr;
             (void)world.alone->trim();
         },
         [](Populated& world) { world.alone.reset(); }},
    };
}

inline std::vector<Operation> freeing() {
    const auto done = [](Populated& world) { CHECK(row_of(*world.saver, "swept").blocks == 2); };
    const auto with_holes = [](Populated& world) {
        world.allocate("swept", 1_MiB);
        world.allocate("swept", 1_MiB);
        world.deallocate(4);
        world.deallocate(5, world.stream);
        world.deallocate(0, already_idle);
    };
    const auto trimmed = [](Populated& world) {
        (void)world.saver->trim(); // a mark that could not be asked for was taken for one that has not passed
        CHECK(row_of(*world.saver, "swept").mapped_bytes < 1_MiB);
    };
    const auto plainly = [](Populated& world) { world.deallocate(0), world.deallocate(2); };
    const auto on_stream = [](Populated& world) {
        world.deallocate(0, world.stream), world.deallocate(2, world.stream);
    };
    const auto idle = [](Populated& world) { world.deallocate(0, already_idle), world.deallocate(2, already_idle); };
    return {
        {"deallocate", nothing, plainly, done},
        {"deallocate: with a stream", nothing, on_stream, done},
        {"deallocate: already idle", nothing, idle, done},
        {"deallocate: paused", pause_swept, plainly, done},
        {"deallocate: paused, with a stream", pause_swept, on_stream, done},
        {"deallocate: paused, already idle", pause_swept, idle, done},
        {"trim", with_holes, [](Populated& world) { (void)world.saver->trim(); }, trimmed, About::all},
        {"trim: one tag, after a stream", with_holes,
         [](Populated& world) {
             TrimOptions options;
             options.order = after(world.stream);
             (void)world.saver->trim("swept", options);
         },
         trimmed},
    };
}

inline std::vector<Operation> pausing() {
    const auto paused = [](Populated& world) {
        CHECK(state_of(world) == "paused");
        CHECK(row_of(*world.saver, "swept").mapped_bytes == 0);
        world.check_bytes("swept");
    };
    const auto with_options = [](auto make) {
        return [make](Populated& world) { world.pause({"swept"}, make(world)); };
    };
    using Options = PauseOptions<FailingDriver>;
    return {
        {"pause: the first", nothing, pause_swept, paused},
        {"pause: a later one, of changed bytes",
         [](Populated& world) {
             world.pause("swept");
             world.resume("swept");
             world.rewrite("swept");
         },
         pause_swept, paused},
        {"pause: what is not paused yet", paused_in_batches, pause_swept, paused},
        {"pause: bytes dropped this once", nothing,
         [](Populated& world) { world.pause({"swept"}, Options{.bytes = Discard{.poison = poison}}, Becomes::poison); },
         paused},
        {"pause: after a stream, with patience", nothing, with_options([](Populated& world) {
             return Options{.order = after(world.stream), .timeout = std::chrono::minutes{5}};
         }),
         paused},
        {"pause: already idle", nothing, with_options([](Populated&) { return Options{.order = already_idle}; }),
         paused},
        {"pause: two tags", nothing,
         [](Populated& world) {
             world.pause({"beside", "swept"});
         },
         [paused](Populated& world) {
             paused(world);
             CHECK(state_of(world, "beside") == "paused");
         },
         About::all},
        {"pause: all", nothing, [](Populated& world) { world.pause_all(); },
         [](Populated& world) { CHECK(world.driver.handle_bytes() == 0); }, About::all},
        {"prepare", nothing, [](Populated& world) { world.saver->prepare("swept"); },
         [](Populated& world) { CHECK(state_of(world) == "active"); }},
    };
}

inline std::vector<Operation> resuming() {
    const auto resumed = [](Populated& world) {
        CHECK(state_of(world) == "active");
        world.check_bytes("swept");
    };
    const auto resume_swept = [](Populated& world) { world.resume("swept"); };
    return {
        {"resume", pause_swept, resume_swept, resumed},
        {"resume: batches with holes", paused_in_batches, resume_swept, resumed},
        {"resume: two tags",
         [](Populated& world) {
             world.pause({"swept", "beside"});
         },
         [](Populated& world) {
             world.resume({"swept", "beside"});
         },
         [resumed](Populated& world) {
             resumed(world);
             world.check_bytes("beside");
         },
         About::all},
        {"resume: all", [](Populated& world) { world.pause_all(); },
         [](Populated& world) { (void)world.saver->resume(); },
         [resumed](Populated& world) {
             resumed(world);
             for (const char* tag : {"beside", "away"}) CHECK(state_of(world, tag) == "active");
         },
         About::all},
        {"resume: with room only for what others do not use",
         [](Populated& world) {
             world.pause("swept");
             world.saver->deallocate(world.saver->arena("beside").allocate(2_MiB), already_idle);
             world.ballast.emplace(world.driver, 1_MiB + 64_KiB);
         },
         resume_swept, resumed},
        {"invalidate, bytes_to_resume, usage", pause_swept,
         [](Populated& world) {
             world.saver->invalidate("swept");
             const std::size_t need = world.saver->bytes_to_resume("swept");
             CHECK(need > 0);
             (void)world.saver->usage();
         },
         [](Populated& world) { CHECK(state_of(world) == "paused"); }},
        {"backup_view", pause_swept,
         [](Populated& world) {
             const auto& block = world.tags["swept"].blocks[2];
             if (world.policy.becomes != Becomes::kept) return;
             const BackupView view = world.saver->backup_view(block.at, block.bytes);
             CHECK(std::memcmp(view.data(), expected_bytes(block.bytes, block.seed).data(), block.bytes) == 0);
         },
         [](Populated& world) { CHECK(state_of(world) == "paused"); }},
    };
}

inline std::vector<Operation> ending() {
    const auto busy = [](Populated& world) {
        world.deallocate(0);
        world.deallocate(3, world.stream);
    };
    const auto close = [](Populated& world) { world.saver->close(); };
    const auto closed = [](Populated& world) {
        CHECK(world.closed());
        CHECK(world.driver.handle_bytes() + world.driver.plain_bytes() + world.driver.reserved_bytes() == 0);
    };
    const auto with_handles = [](Populated& world) {
        world.counted = false;
        world.buffer.emplace(world.saver->arena("swept"), 30'000);
        world.handle = world.saver->arena("swept");
    };
    return {
        {"close: active", busy, close, closed, About::the_end},
        {"close: paused", pause_swept, close, closed, About::the_end},
        {"close: paused in part", paused_in_batches, close, closed, About::the_end},
        {"~Buffer, ~Arena", with_handles,
         [](Populated& world) {
             world.buffer.reset();
             world.handle = {};
         },
         nothing},
        {"~Buffer: paused",
         [with_handles](Populated& world) {
             with_handles(world);
             world.pause("swept");
         },
         [](Populated& world) { world.buffer.reset(); }, nothing},
    };
}

/// Who dies with failures has nobody who could repeat it.
inline std::vector<Operation> dying() {
    const auto die = [](Populated& world) {
        world.died = true;
        world.saver.reset();
    };
    return {
        {"~MemorySaver: active", nothing, die, nothing, About::the_end},
        {"~MemorySaver: paused", pause_swept, die, nothing, About::the_end},
        {"~MemorySaver: paused in part", paused_in_batches, die, nothing, About::the_end},
    };
}

inline std::vector<Operation> graphs() {
    // Fills a block that stays, and one that is given up in the capture.
    const auto body = [](Populated& world, unsigned char byte, void*& made, int times = 1) {
        void* const fresh = world.saver->allocate(64_KiB);
        void* const scratch = world.saver->allocate(100'000);
        for (int i = 0; i < times; ++i) fill_on(world.driver, fresh, 64_KiB, byte, world.stream);
        fill_on(world.driver, scratch, 100'000, byte, world.stream);
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
        const auto* const bytes = static_cast<const unsigned char*>(at);
        CHECK(std::all_of(bytes, bytes + 64_KiB, [&](unsigned char each) { return each == byte; }));
    };
    const auto one_works = [replays](Populated& world) { replays(world, world.graph, world.filled, 1); };
    // Where the call that ends a capture fails for good, it stays open until the program ends it.
    const auto end_capture = [](Populated& world) {
        bool open = false;
        REQUIRE(world.driver.capturing(world.stream, open).ok());
        GraphRef graph;
        if (open && world.driver.end_capture(world.stream, graph).ok()) CHECK(world.driver.close_graph(graph).ok());
    };
    const auto update = [body](int times) {
        return [=](Populated& world) {
            world.graph.update(world.stream, [&] { body(world, 3, world.refilled, times); });
            world.filled = world.refilled;
        };
    };
    const auto updated = [replays](Populated& world) { replays(world, world.graph, world.filled, 3); };
    return {
        {"capture", captured,
         [body](Populated& world) {
             world.another = capture(*world.saver, "swept", world.stream, [&] { body(world, 2, world.refilled); });
         },
         [=](Populated& world) {
             one_works(world);
             replays(world, world.another, world.refilled, 2);
         },
         About::swept, end_capture},
        {"Graph::launch", captured, [](Populated& world) { world.graph.launch(world.stream); }, one_works},
        {"Graph::update: in place", captured, update(1), updated, About::swept, end_capture},
        {"Graph::update: by another", captured, update(3), updated, About::swept, end_capture},
        {"~Graph", captured, [](Populated& world) { world.graph.reset(); }, nothing},
    };
}

inline std::vector<Operation> workspaces() {
    const auto with_pool = [](Populated& world) {
        world.counted = false;
        world.pool.emplace(world.saver->arena("swept"), WorkspacePoolOptions{.cap = 4_MiB});
        world.filled = world.pool->get("a", 100'000);
        std::memset(world.filled, 1, 100'000);
    };
    const auto kept = [](Populated& world) {
        const auto* const bytes = static_cast<const unsigned char*>(world.filled);
        CHECK(std::all_of(bytes, bytes + 100'000, [](unsigned char each) { return each == 1; }));
    };
    return {
        {"WorkspacePool::get: a new place", with_pool,
         [](Populated& world) { (void)world.pool->get("b", 70'000, {.group = "other"}); }, kept},
        {"WorkspacePool::get: growth", with_pool,
         [](Populated& world) {
             void* const grown = world.pool->get("a", 900'000);
             CHECK(grown == world.filled);
         },
         kept},
        {"WorkspacePool::get: zeroed", with_pool,
         [](Populated& world) {
             world.refilled = world.pool->get("c", 70'000, {.reuse = Reuse::zeroed, .stream = world.stream});
         },
         [](Populated& world) {
             REQUIRE(world.driver.drain().ok());
             const auto* const bytes = static_cast<const unsigned char*>(world.refilled);
             CHECK(std::all_of(bytes, bytes + 70'000, [](unsigned char each) { return each == 0; }));
         }},
        {"~WorkspacePool", with_pool, [](Populated& world) { world.pool.reset(); }, nothing},
        {"~WorkspacePool: paused",
         [with_pool](Populated& world) {
             with_pool(world);
             world.pause("swept");
         },
         [](Populated& world) { world.pool.reset(); }, nothing},
    };
}

} // namespace test
