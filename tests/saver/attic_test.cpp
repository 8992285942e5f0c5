// What could not be given back is kept, counted, and given back by the next operation, by `close`, or by the last
// owner: every way in which memory ends, with every call failing that gives something back.
#include "graph/graph_support.hpp"
#include "support/machines.hpp"
#include "support/nothing_left.hpp"
#include "support/sampling.hpp"

namespace saver_attic_test {
using namespace test;
using Saver = MemorySaver<MachineDriver>;

/// A tag with a block that stays, and one of everything that ends.
struct World {
    World()
        : driver{HostDriver{64_MiB, {.granularity = 64_KiB}}}, saver{std::in_place, driver},
          arena{saver->arena("a", HostBackup{.threads = 1})} {
        stays = arena.allocate(64_KiB);
        write_pattern(driver, stays, 64_KiB, 1);
        large = arena.allocate(1_MiB);
        elastic.emplace(arena.elastic(256_KiB, {.granularity = 64_KiB}));
        elastic->commit(0, 256_KiB);
        pool.emplace(arena, WorkspacePoolOptions{.cap = 256_KiB});
        (void)pool->get("w", 128_KiB);
        other = saver->arena("other", HostBackup{.threads = 1}).allocate(128_KiB);
        outside = saver->outside().allocate(1000);
        stream.emplace(driver);
        graph = capture(*saver, "a", *stream, [&] {
            const Buffer<char> freed{arena, 64_KiB};
            WorkspacePool inside{arena, {.cap = 128_KiB}};
            (void)inside.get("w", 64_KiB);
        });
    }
    World(World&&) = delete;

    MachineDriver driver;
    std::optional<Saver> saver;
    Arena arena;
    void* stays = nullptr;
    void* large = nullptr;
    std::optional<Elastic> elastic;
    std::optional<WorkspacePool> pool;
    void* other = nullptr;
    void* outside = nullptr;
    std::optional<OwnStream<MachineDriver>> stream;
    Graph graph;
    bool dropped = false;
};

void drop_other(World& world) {
    world.dropped = true;
    world.saver->drop("other");
}

struct Way {
    const char* name;
    void (*before)(World&); ///< without failures
    void (*end)(World&);
};

constexpr auto nothing = [](World&) {};

constexpr Way ways[] = {
    {"a pause", nothing, [](World& w) { (void)w.saver->pause(); }},
    {"a pause with another policy", nothing,
     [](World& w) { (void)w.saver->pause("a", {.bytes = FileBackup{.threads = 1}}); }},
    {"a resume after that", [](World& w) { (void)w.saver->pause("a", {.bytes = HostBackup{.threads = 1}}); },
     [](World& w) { (void)w.saver->resume(); }},
    {"a trim", [](World& w) { w.arena.deallocate(std::exchange(w.large, nullptr)); },
     [](World& w) { (void)w.saver->trim(); }},
    {"a growth that fails", [](World& w) { w.driver.fail({.call = Call::allow_access}); },
     [](World& w) { (void)w.arena.allocate(2_MiB); }},
    {"a release", nothing, [](World& w) { w.elastic->release(0, 128_KiB, already_idle); }},
    {"an elastic range", nothing, [](World& w) { w.elastic.reset(); }},
    {"a pool", nothing, [](World& w) { w.pool.reset(); }},
    {"a graph", nothing, [](World& w) { w.graph.reset(); }},
    {"a graph while its memory is paused", [](World& w) { (void)w.saver->pause(); }, [](World& w) { w.graph.reset(); }},
    {"a tag", nothing, drop_other},
    {"a paused tag", [](World& w) { (void)w.saver->pause("other"); }, drop_other},
    {"a plain block", nothing, [](World& w) { w.saver->deallocate(w.outside); }},
    {"an exchange", [](World& w) { (void)w.saver->pause("other"); },
     [](World& w) { (void)w.saver->exchange("a", "other"); }},
};

constexpr Call giving_back[] = {Call::unmap,       Call::release,     Call::unreserve,  Call::close_stream,
                                Call::close_event, Call::close_graph, Call::free_plain, Call::unpin_host,
                                Call::unmap_host,  Call::close_file,  Call::drain};

void end_with_failure(World& world, const Way& way, Call call, Lasting lasting) {
    way.before(world);
    world.driver.fail({.call = call, .lasting = lasting});
    try {
        way.end(world);
    } catch (const std::exception&) { // what has failed is said; what counts here is what is left
    }
    CHECK(world.driver.violations().empty());
    check_books(*world.saver, world.driver);
    world.driver.heal();
}

void check_ended(World& world) {
    world.graph.reset();
    world.pool.reset();
    world.elastic.reset();
    world.arena = {};
    world.saver.reset();
    world.stream.reset();
    CHECK_MESSAGE(left_without_reason(world.driver).empty(), left_without_reason(world.driver));
    CHECK(world.driver.violations().empty());
}

void each_way(void (*rest)(World&)) {
    std::uint64_t index = 0;
    for (const Way& way : ways) {
        CAPTURE(std::string{way.name});
        for (const Call call : giving_back) {
            CAPTURE(std::string{call_name(call)});
            for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
                if (index++ % sampling().stride(5) != sampling().first(5)) continue;
                World world;
                end_with_failure(world, way, call, lasting);
                rest(world);
                check_ended(world);
            }
        }
    }
}

TEST_CASE("attic: the next operation releases what could not be released") {
    each_way([](World& world) {
        bool there = false; // a tag that could not be dropped is there, and can be dropped again
        for (const ArenaUsage& row : world.saver->usage()) there = there || row.tag == "other";
        if (world.dropped && there) world.saver->drop("other");
        (void)world.saver->resume();
        (void)world.saver->pause();
        (void)world.saver->trim();
        for (const ArenaUsage& row : world.saver->usage()) CHECK(row.held_bytes == 0);
        CHECK(world.driver.handle_bytes() == 0);
        (void)world.saver->resume();
        CHECK(has_pattern(world.driver, world.stays, 64_KiB, 1));
        check_books(*world.saver, world.driver);
    });
}

TEST_CASE("attic: `close` releases it") {
    each_way([](World& world) {
        world.saver->close();
        CHECK(world.driver.handle_bytes() == 0);
        CHECK(world.driver.plain_bytes() == 0);
        CHECK(world.driver.pinned_bytes() == 0);
    });
}

TEST_CASE("attic: so does the end of the last owner") {
    each_way([](World&) {});
}
} // namespace saver_attic_test
