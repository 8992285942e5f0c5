// WorkspacePool: names share bytes, grow in place, and have the same addresses after a resume.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"

namespace graph_workspace_pool_test {
using namespace test;

void* at(void* base, std::size_t bytes) { return static_cast<char*>(base) + bytes; }

/// Memory that is lent, and not freed.
std::shared_ptr<void> lent(void* memory) {
    return {memory, [](void*) {}};
}

TEST_CASE_FIXTURE(OnSaver, "the same name has the same address, and names of a group share it" * on_machines) {
    WorkspacePool workspaces{saver.arena("workspace")};
    void* const gate = workspaces.get("moe.gate", 48_MiB);
    CHECK(reinterpret_cast<Address>(gate) % 256 == 0);
    CHECK(row_of(saver, "workspace").mapped_bytes == 48_MiB);
    CHECK(workspaces.get("moe.gate", 1_MiB) == gate);
    CHECK(workspaces.get("moe.up", 20_MiB) == gate);
    CHECK(workspaces.get("sampling", 1) == gate);
    CHECK(row_of(saver, "workspace").mapped_bytes == 48_MiB);
    write_pattern(machine.driver, gate, 48_MiB, 1);
    CHECK(has_pattern(machine.driver, workspaces.get("moe.up", 20_MiB), 48_MiB, 1)); // unchanged

    const WorkspaceStats stats = workspaces.stats();
    CHECK(stats.names == 3);
    CHECK(stats.places == 1);
    CHECK(stats.asked_bytes == 68_MiB + 1);
    CHECK(stats.gets == 5);
    CHECK(stats.growths == 1);
    CHECK(stats.reuses == 4);
    CHECK(printed(stats) ==
          "3 workspaces in 1 place: 68.00 MiB requested, 48.00 MiB allocated, 0 B lent, reuse saved 20.00 MiB");
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnSaver, "a name that finds room in a larger place goes there, up to its own cap" * on_machines) {
    WorkspacePool workspaces{saver.arena("workspace"), {.cap = 32_MiB}};
    void* const small = workspaces.get("small", 2_MiB, {.cap = 4_MiB});
    void* const large = workspaces.get("large", 16_MiB); // may grow to 32 MiB, which fits no existing place
    CHECK(small != large);
    CHECK(workspaces.get("fits the first", 2_MiB, {.cap = 2_MiB}) == small);
    CHECK(workspaces.get("too large for it", 3_MiB, {.cap = 4_MiB}) == large); // already large enough
    CHECK(workspaces.stats().growths == 2);
    CHECK(workspaces.get("may grow", 1_MiB) == large);
    CHECK(workspaces.get("too large for it", 4_MiB) == large);
    CHECK_THROWS_AS((void)workspaces.get("too large for it", 5_MiB), Misuse); // its own cap, although there is space
    CHECK(workspaces.get("small", 4_MiB) == small);                           // below its cap: grows
    CHECK(workspaces.stats().places == 2);
    CHECK(workspaces.stats().mapped_bytes == 20_MiB);
}

TEST_CASE_FIXTURE(OnMachine, "a workspace without room: on_no_room may use the pool") {
    std::optional<WorkspacePool> pool;
    int asked = 0;
    void* other = nullptr;
    MemorySaver saver{machine.driver, {.on_no_room = [&](const NoRoom&) {
                          other = pool->get("other", 1_MiB);
                          return ++asked == 1 && pool->stats().names == 1;
                      }}};
    pool.emplace(saver.arena("tag"), WorkspacePoolOptions{.cap = 64_MiB});
    for (const unsigned nth : {1U, 2U}) // it is tried once more before anybody is asked
        machine.driver.fail({.call = Call::create, .nth = nth, .kind = StatusKind::out_of_memory});
    CHECK(pool->get("ws", 32_MiB, {.group = "alone"}) != nullptr);
    CHECK(asked == 1);
    CHECK(other != nullptr);
    CHECK(pool->stats().names == 2);
}

TEST_CASE_FIXTURE(OnSaver, "a workspace beyond its cap and other misuse is refused, with the name" * on_machines) {
    const Arena arena = saver.arena("workspace", Discard{}, ArenaOptions{.capacity = 64_MiB});
    CHECK_THROWS_AS(WorkspacePool(Arena{}), Misuse);
    CHECK_THROWS_AS(WorkspacePool(arena, {.cap = 0}), Misuse);
    WorkspacePool workspaces{arena, {.cap = 16_MiB}};
    const auto refused = [&](const std::string& part, auto act) {
        const auto state = [&] {
            const WorkspaceStats stats = workspaces.stats();
            return std::array{stats.names, stats.asked_bytes, stats.places, machine.driver.handle_bytes()};
        };
        const auto before = state();
        check_says<Misuse>(part, act);
        CHECK(state() == before);
    };
    refused("its cap is 16.00 MiB", [&] { (void)workspaces.get("a", 16_MiB + 1); });
    refused("the size is 0", [&] { (void)workspaces.get("a", 0); });
    refused("needs a name", [&] { (void)workspaces.get("", 1_MiB); });
    void* const a = workspaces.get("a", 1_MiB, {.cap = 8_MiB, .group = "g"});
    refused("its cap is 8.00 MiB", [&] { (void)workspaces.get("a", 9_MiB); });
    refused("not 9.00 MiB", [&] { (void)workspaces.get("a", 1_MiB, {.cap = 9_MiB}); });
    refused("group \"g\"", [&] { (void)workspaces.get("a", 1_MiB, {.group = "h"}); });
    refused("\"a\" of tag \"workspace\"", [&] { (void)workspaces.get("a", 9_MiB); });
    refused("64.00 MiB", [&] { (void)workspaces.get("huge", 1_MiB, {.cap = 1_GiB}); }); // the arena's capacity
    CHECK(workspaces.get("a", 8_MiB, {.cap = 8_MiB, .group = "g"}) == a);

    // Only the pool may free it, in whole or in part.
    check_says<Misuse>("workspace", [&] { saver.deallocate(a); });
    CHECK_THROWS_AS(arena.deallocate(at(a, 2_MiB)), Misuse);
    write_pattern(machine.driver, a, 8_MiB, 1);
    CHECK(has_pattern(machine.driver, workspaces.get("a", 8_MiB), 8_MiB, 1));
}

TEST_CASE_FIXTURE(OnSaver, "a pool that was moved from is refused" * on_machines) {
    const Arena arena = saver.arena("workspace");
    WorkspacePool old{arena};
    void* const workspace = old.get("a", 1_MiB);
    WorkspacePool pool{std::move(old)};
    CHECK(pool.get("a", 1_MiB) == workspace);
    // NOLINTBEGIN(bugprone-use-after-move)
    check_says<Misuse>("moved-from", [&] { (void)old.get("a", 1_MiB); });
    CHECK_THROWS_AS(old.lend(arena, lent(workspace), 1_MiB), Misuse);
    CHECK_THROWS_AS((void)old.stats(), Misuse);
    CHECK_THROWS_AS((void)old.arena(), Misuse);
    // NOLINTEND(bugprone-use-after-move)
    old = std::move(pool);
    CHECK(old.get("a", 1_MiB) == workspace);
}

TEST_CASE_FIXTURE(OnSaver,
                  "while it is being paused a workspace is not zeroed, and growth waits for the pause" * on_machines) {
    WorkspacePool workspaces{saver.arena("workspace", HostBackup{}), {.cap = 16_MiB}};
    void* const a = workspaces.get("a", 2_MiB);
    std::atomic<std::size_t> refused = 0;
    const auto get = [&](std::size_t bytes, Reuse reuse) {
        try {
            (void)workspaces.get("a", bytes, {.reuse = reuse});
        } catch (const Misuse&) {
            refused += 1;
        }
    };
    std::optional<Doing> growing;
    machine.driver.on_call([&](const CallRecord& made) { // the saves are under way
        if (made.call != Call::copy_to_host || growing) return;
        get(1_MiB, Reuse::zeroed);
        growing.emplace([&] { get(4_MiB, Reuse::as_is); });
    });
    (void)saver.pause();
    machine.driver.on_call({});
    REQUIRE(growing);
    growing->join();
    CHECK(refused == 2);
    CHECK(workspaces.get("other", 2_MiB, {.reuse = Reuse::zeroed, .group = "other"}) != nullptr); // not paused with it
    (void)saver.resume();
    CHECK(workspaces.get("a", 4_MiB) == a);
}

TEST_CASE("a name that is there is had while another one's growth waits for the device") {
    const HostDriver driver{64_MiB};
    const OwnStream stream{driver};
    for (const std::size_t capacity : {std::size_t{0}, 48_MiB}) { // no room, or the tag's capacity
        CAPTURE(capacity);
        MemorySaver saver{driver};
        const Arena arena = saver.arena("w", ArenaOptions{.capacity = capacity});
        WorkspacePool pool{arena, {.cap = 32_MiB}};
        void* const there = pool.get("there", 2_MiB);
        void* const freed = arena.allocate(40_MiB);
        REQUIRE(driver.hold(stream).ok());
        REQUIRE(driver.fill(address_of(freed), 1, 1_MiB, stream).ok());
        arena.deallocate(freed);
        Doing growing{[&] { (void)pool.get("grows", 30_MiB); }};
        std::this_thread::sleep_for(20ms);
        CHECK(pool.get("there", 2_MiB) == there);
        CHECK(!growing.over());
        REQUIRE(driver.let_go(stream).ok());
        growing.join();
        CHECK(pool.stats().names == 2);
    }
}

TEST_CASE_FIXTURE(OnEither, "a pool may outlive its saver, and `close`" * on_machines) {
    std::optional<WorkspacePool> late;
    {
        MemorySaver ends{machine.driver, {.enabled = enabled}};
        late.emplace(ends.arena("workspace"));
        void* const a = late->get("a", 2_MiB);
        WorkspacePool closed{ends.arena("closed")};
        (void)closed.get("a", 2_MiB);
        CHECK(late->get("a", 2_MiB) == a);
    }
    write_pattern(machine.driver, late->get("a", 4_MiB), 4_MiB, 1);
    late.reset();
    check_given_back(machine.driver);
    late.emplace(saver.arena("workspace"));
    (void)late->get("a", 2_MiB);
    saver.close();
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK_THROWS_AS((void)late->get("a", 4_MiB), Misuse);
    CHECK_THROWS_AS((void)late->get("b", 4_MiB, {.group = "new"}), Misuse);
    CHECK_THROWS_AS((void)late->get("a", 2_MiB), Misuse); // there is no memory at its address any more
    CHECK_THROWS_AS((void)late->get("a", 2_MiB, {.reuse = Reuse::zeroed}), Misuse);
}

TEST_CASE_FIXTURE(OnSaver, "lent memory serves names that fit, until the pool lets it go" * on_machines) {
    const Arena graph = saver.arena("graph");
    void* const block = graph.allocate(8_MiB);
    bool alive = true;
    {
        WorkspacePool workspaces{saver.arena("workspace"), {.cap = 16_MiB}};
        const auto free = [&](void* memory) {
            alive = false;
            graph.deallocate(memory, already_idle);
        };
        workspaces.lend(graph, std::shared_ptr<void>{block, free}, 8_MiB, "decode");
        CHECK(workspaces.get("eager", 6_MiB, {.cap = 8_MiB, .group = "decode"}) == block);
        CHECK(workspaces.get("eager", 8_MiB) == block);
        CHECK_THROWS_AS((void)workspaces.get("eager", 8_MiB + 1), Misuse);
        CHECK(workspaces.get("may grow", 1_MiB, {.group = "decode"}) != block);
        CHECK(workspaces.get("of another group", 1_MiB, {.cap = 1_MiB}) != block);
        CHECK(workspaces.stats().lent_bytes == 8_MiB);
        CHECK(workspaces.stats().mapped_bytes == 4_MiB);
        write_pattern(machine.driver, block, 8_MiB, 1);
        CHECK(workspaces.get("eager", 4_MiB, {.reuse = Reuse::zeroed}) == block);
        CHECK(machine.driver.drain().ok());
        CHECK(all_are(machine.driver, block, 4_MiB, 0));
        (void)saver.pause("graph");
        CHECK_THROWS_AS((void)workspaces.get("eager", 4_MiB, {.reuse = Reuse::zeroed}), Misuse);
        (void)saver.resume();
        CHECK(alive);

        CHECK_THROWS_AS(workspaces.lend(graph, nullptr, 8_MiB), Misuse);
        CHECK_THROWS_AS(workspaces.lend(graph, lent(block), 0), Misuse);
        CHECK_THROWS_AS(workspaces.lend(graph, lent(at(block, 1)), 1_MiB), Misuse);
        CHECK_THROWS_AS(workspaces.lend(graph, lent(&alive), 1), Misuse);
    }
    CHECK(!alive);
    CHECK(graph.usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnSaver,
                  "with single handles a place grows once: a new name that needs more gets its own" * on_machines) {
    WorkspacePool workspaces{saver.arena("workspace", Discard{}, {.single_handle = true}), {.cap = 64_MiB}};
    void* const small = workspaces.get("small", 2_MiB);
    void* const large = workspaces.get("large", 8_MiB);
    CHECK(large != small);
    CHECK(workspaces.get("small too", 2_MiB) == small);
    CHECK(workspaces.get("large too", 4_MiB) == large);
    const std::string text = text_of<Misuse>([&] { (void)workspaces.get("large", 9_MiB); }); // graphs have its address
    CHECK((contains(text, "single_handle") && contains(text, "request the maximum size first")));
    CHECK(workspaces.stats().places == 2);
}

TEST_CASE_FIXTURE(OnEither, "lent memory is handed out no more once its tag has been dropped" * on_machines) {
    WorkspacePool workspaces{saver.arena("workspace"), {.cap = 8_MiB}};
    const Arena graph = saver.arena("graph");
    void* const block = graph.allocate(8_MiB);
    workspaces.lend(graph, lent(block), 8_MiB);
    CHECK(workspaces.get("a", 1_MiB) == block);
    saver.drop("graph");
    check_says<Misuse>("lent", [&] { (void)workspaces.get("a", 1_MiB); });
    CHECK(saver.owns(workspaces.get("b", 1_MiB))); // the pool's own memory
}

TEST_CASE_FIXTURE(OnEither, "memory that is lent must be a part of a live block, or all of it" * on_machines) {
    const Arena graph = saver.arena("graph", Discard{}, ArenaOptions{.capacity = 128_MiB});
    WorkspacePool workspaces{graph, {.cap = 16_MiB}};
    void* const block = graph.allocate(8_MiB);
    const auto lend = [&](void* memory, std::size_t bytes) { workspaces.lend(graph, lent(memory), bytes); };
    CHECK_THROWS_AS(lend(block, 8_MiB + 4_KiB), Misuse);
    CHECK_THROWS_AS(lend(at(block, 4_MiB), 8_MiB), Misuse);
    CHECK_THROWS_AS(lend(block, ~std::size_t{0}), Misuse);
    lend(at(block, 2_MiB), 4_MiB);
    CHECK(workspaces.get("a", 1_MiB, {.cap = 4_MiB}) == at(block, 2_MiB));
    // A workspace that has grown consists of several blocks.
    void* const grown = workspaces.get("b", 8_MiB);
    CHECK(workspaces.get("b", 16_MiB) == grown);
    CHECK_NOTHROW(lend(grown, 16_MiB));
    CHECK_THROWS_AS(lend(grown, 17_MiB), Misuse);
    graph.deallocate(block);
    CHECK_THROWS_AS(lend(block, 8_MiB), Misuse);
}

TEST_CASE_FIXTURE(OnTwo, "a pool used from a second device is refused, and named") {
    WorkspacePool workspaces{saver.arena("workspace")};
    const OwnStream there{second.driver};
    const OwnStream here{first.driver};
    const std::string text = text_of<Misuse>([&] { (void)workspaces.get("a", 1_MiB, {.stream = there}); });
    CHECK_MESSAGE(contains(text, "device 0"), text);
    CHECK_MESSAGE(contains(text, "a pool for each device"), text);
    CHECK(workspaces.stats().names == 0);
    CHECK(first.driver.handle_bytes() == 0);
    CHECK(workspaces.get("a", 1_MiB, {.stream = here}) != nullptr);
    CHECK_THROWS_AS((void)workspaces.get("a", 1_MiB, {.stream = there}), Misuse);

    const Arena other = saver.arena("workspace", Discard{}, second.driver); // the same tag, another device
    void* const block = other.allocate(1_MiB);
    check_says<Misuse>("device 1", [&] { workspaces.lend(other, lent(block), 1_MiB); });
    WorkspacePool of_second{other};
    CHECK(of_second.get("a", 1_MiB, {.stream = there}) != nullptr);
}

TEST_CASE_FIXTURE(OnMode,
                  "inside a capture a workspace is made, grows and is zeroed, and replays zero it again" * on_hosts) {
    WorkspacePool workspaces{saver.arena("workspace"), {.cap = 16_MiB}};
    OwnCapture graph{machine.driver, stream, mode};
    void* const a = workspaces.get("a", 2_MiB, {.stream = stream});
    CHECK(workspaces.get("a", 4_MiB, {.reuse = Reuse::zeroed, .stream = stream}) == a);
    REQUIRE(graph.end());
    CHECK(workspaces.get("eager", 8_MiB) == a); // between launches it is usable by others, and grows
    for (int i = 0; i < 2; ++i) {
        write_pattern(machine.driver, a, 8_MiB, 1);
        graph.replay();
        CHECK(all_are(machine.driver, a, 4_MiB, 0));
        pause_and_resume(saver);
    }
}
} // namespace graph_workspace_pool_test
