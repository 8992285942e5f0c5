// Graphs as used by programs: launching, updating, the memory that they keep, and their end.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"

namespace graph_graph_test {
using namespace test;

TEST_CASE_FIXTURE(OnStream, "blocks that a body frees stay with the graph until it ends" * on_machines) {
    const Arena arena = saver.arena("graph", Zero{}, {.capacity = 32_MiB});
    const Arena other = saver.arena("other", Zero{}, {.capacity = 8_MiB});
    void* const before = arena.allocate(1_MiB); // used by the body, but not allocated in it
    std::vector<void*> kept{before};
    void* idle = nullptr;
    std::optional<Graph> graph = capture(saver, "graph", stream, [&] {
        for (int i = 0; i < 4; ++i) kept.push_back(saver.allocate(1_MiB));
        void* const elsewhere = other.allocate(1_MiB);
        {
            const Buffer<char> buffer{arena, 1_MiB};
            kept.push_back(buffer.data());
        }
        kept.push_back(elsewhere);
        for (void* const block : kept) fill_on(machine.driver, block, 1_MiB, 1, stream);
        idle = arena.allocate(1_MiB);
        saver.deallocate(before);
        saver.deallocate(kept[1]);
        arena.deallocate(kept[2]);
        saver.deallocate(kept[3], stream);
        // The stream, not the thread, identifies the capture.
        std::thread{[&] { saver.deallocate(kept[4], stream); }}.join();
        other.deallocate(elsewhere);
        arena.deallocate(idle, already_idle);
        CHECK_THROWS_AS(saver.deallocate(kept[1]), Misuse);
    });
    CHECK_THROWS_AS(saver.deallocate(kept[2]), Misuse);
    CHECK(arena.usage().blocks == 0);

    const auto in_use = [&] {
        REQUIRE(machine.driver.drain().ok());
        std::vector<void*> others = all_of(arena, 1_MiB);
        const std::vector<void*> more = all_of(other, 1_MiB);
        others.insert(others.end(), more.begin(), more.end());
        for (void* const block : others) write_pattern(machine.driver, block, 1_MiB, 2);
        if (graph) replay(machine.driver, *graph, stream);
        for (void* const block : others) CHECK(has_pattern(machine.driver, block, 1_MiB, 2));
        for (void* const block : others) saver.deallocate(block, already_idle);
        return others;
    };
    std::vector<void*> used = in_use();
    CHECK(has(used, idle));
    for (void* const block : kept) CHECK(!has(used, block));
    (void)saver.trim();
    pause_and_resume(saver);
    used = in_use();
    for (void* const block : kept) CHECK(!has(used, block));

    graph.reset();
    CHECK(arena.usage().blocks == 0);
    used = in_use();
    for (void* const block : kept) CHECK(has(used, block));
}

TEST_CASE_FIXTURE(OnStream, "the bytes of blocks that a graph keeps are saved too" * on_machines) {
    constexpr std::size_t bytes = 64_KiB;
    Outbox out{machine.driver, bytes};
    std::optional<Graph> graph = capture(saver, "graph", stream, [&] {
        const Buffer<char> table{saver.arena("graph"), bytes}; // allocated by the body
        write_pattern(machine.driver, table.data(), bytes, 3);
        out.fetch(table.data(), stream);
    });
    for (int i = 0; i < 2; ++i) {
        (void)saver.pause();
        CHECK(row_of(saver, "graph").backed_up_bytes >= bytes);
        (void)saver.resume();
        out.clear();
        replay(machine.driver, *graph, stream);
        CHECK(out.bytes() == pattern(bytes, 3));
    }
    (void)saver.pause();
    CHECK(saver.bytes_to_resume() != 0);
    graph.reset(); // while paused: nothing needs to be resumed
    CHECK(saver.bytes_to_resume() == 0);
    CHECK(row_of(saver, "graph").backed_up_bytes == 0);
    CHECK(saver.resume().mapped_bytes == 0);
}

TEST_CASE_FIXTURE(OnMode, "updating: the graph does what the new body does, in the same tag" * on_machines) {
    const Arena arena = saver.arena("graph", Zero{}, {.capacity = 16_MiB});
    void* const block = arena.allocate(1_MiB);
    void* scratch = nullptr;
    const auto body = [&](unsigned char byte, int times) {
        return [&, byte, times] {
            scratch = saver.allocate(1_MiB);
            for (int i = 0; i < times; ++i) fill_on(machine.driver, block, 1_MiB, byte, stream);
            fill_on(machine.driver, scratch, 1_MiB, byte, stream);
            saver.deallocate(scratch);
        };
    };
    Graph graph = capture(saver, "graph", stream, {.mode = mode}, body(1, 1));
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 1));
    const GraphRef executable = graph.native();
    const void* const first = scratch;

    graph.update(stream, body(2, 1)); // the same shape
    if (on_cuda()) {
        WARN(graph.native() == executable); // drivers may replace it in an in-place update
    } else {
        CHECK(graph.native() == executable);
    }
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 2));
    CHECK(scratch != first);
    const void* const second = scratch;

    graph.update(stream, body(3, 4)); // another shape
    CHECK(machine.driver.outstanding().graphs == 1);
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 3));

    const auto broken = [&] {
        body(9, 4)();
        throw std::runtime_error{"in the body"};
    };
    CHECK_THROWS_AS(graph.update(stream, broken), std::runtime_error);
    CHECK(!stream.capturing());
    pause_and_resume(saver);
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 3)); // unchanged

    // Memory freed by earlier captures is the arena's again; that of the last one is not.
    graph.update(stream, body(4, 4));
    const void* const last = scratch;
    const std::vector<void*> rest = all_of(arena, 1_MiB);
    CHECK((has(rest, first) || first == last));
    CHECK((has(rest, second) || second == last));
    CHECK(!has(rest, last));
}

TEST_CASE_FIXTURE(OnMachine, "a graph outlives close, and its saver" * on_machines) {
    const OwnStream stream{machine.driver};
    Graph left;
    {
        Told told;
        MemorySaver saver{machine.driver, {.events = told.sink()}};
        const auto body = [&] { saver.deallocate(saver.allocate(1_MiB)); };
        Graph graph = capture(saver, "graph", stream, body);
        left = capture(saver, "left", stream, body);
        saver.close();
        CHECK(machine.driver.handle_bytes() == 0);
        check_says<Misuse>("closed", [&] { graph.launch(stream); });
        CHECK_THROWS_AS(graph.update(stream, [] {}), Misuse);
        CHECK_THROWS_AS((void)capture(saver, "graph", stream, [] {}), Misuse);
        CHECK(!stream.capturing());
        CHECK(graph.tag() == "graph");
        graph.reset();
        CHECK(machine.driver.outstanding().graphs == 1);
        CHECK(told.texts().empty());
    }
    CHECK_THROWS_AS(left.launch(stream), Misuse);
    left = {};
    CHECK(machine.driver.outstanding().graphs == 0);
}

TEST_CASE("an empty Graph") {
    const Graph empty;
    CHECK(!empty);
    CHECK_THROWS_AS(empty.launch({}), Misuse);
    CHECK_THROWS_AS((void)empty.tag(), Misuse);
    CHECK_THROWS_AS((void)empty.device(), Misuse);
    CHECK_THROWS_AS((void)empty.native(), Misuse);
    Graph other;
    CHECK_THROWS_AS(other.update({}, [] {}), Misuse);
    other.reset();
    static_assert(!std::is_copy_constructible_v<Graph> && std::is_nothrow_move_constructible_v<Graph>);
}

TEST_CASE_FIXTURE(OnEither, "a pool of workspaces that ends in a body stays with the graph" * on_machines) {
    const OwnStream stream{machine.driver};
    const Arena arena = saver.arena("workspace", HostBackup{}, ArenaOptions{.capacity = 64_MiB});
    void* workspace = nullptr;
    const auto body = [&](unsigned char byte, bool throws = false) {
        WorkspacePool pool{arena, {.cap = 16_MiB}};
        (void)pool.get("a", 2_MiB);
        void* const grown = pool.get("a", 4_MiB); // grows twice
        fill_on(machine.driver, grown, 4_MiB, byte, stream);
        if (throws) throw std::runtime_error{"on purpose"};
        workspace = grown;
    };
    Graph graph = capture(saver, "graph", stream, [&] { body(1); });
    const auto still_its = [&](unsigned char byte) {
        std::vector<void*> others;
        for (int i = 0; i < 4; ++i) others.push_back(arena.allocate(4_MiB));
        CHECK(!has(others, workspace));
        for (void* const other : others) write_pattern(machine.driver, other, 4_MiB, 2);
        replay(machine.driver, graph, stream);
        CHECK(all_are(machine.driver, workspace, 4_MiB, byte));
        for (void* const other : others) CHECK(has_pattern(machine.driver, other, 4_MiB, 2));
        free_all(arena, others);
        CHECK(row_of(saver, "workspace").used_bytes == 0);
        check_books(saver, machine.driver);
    };
    still_its(1);
    pause_and_resume(saver);
    still_its(1);
    graph.update(stream, [&] { body(3); });
    still_its(3);
    CHECK_THROWS_AS(graph.update(stream, [&] { body(4, true); }), std::runtime_error);
    still_its(3);
    graph.reset();
    (void)saver.trim();
    CHECK(row_of(saver, "workspace").mapped_bytes == 0);
}
} // namespace graph_graph_test
