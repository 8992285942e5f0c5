// Capturing: where allocations go, what prevents pauses, and the state after a failed capture.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"

namespace graph_capture_test {
using namespace test;

TEST_CASE_FIXTURE(OnMode, "a captured graph replays after its memory was away, in every mode" * on_machines) {
    void* small = nullptr;
    void* large = nullptr;
    Buffer<float> buffer;
    const Graph graph = capture(saver, "graph", stream, {.mode = mode, .policy = Zero{}}, [&] {
        small = saver.allocate(1000);
        large = saver.allocate(20_MiB); // grows
        buffer = Buffer<float>{saver.arena("graph"), 1 << 18};
        fill_on(machine.driver, small, 1000, 1, stream);
        fill_on(machine.driver, large, 20_MiB, 2, stream);
        fill_on(machine.driver, buffer.data(), buffer.size_bytes(), 3, stream);
    });
    CHECK(!stream.capturing());
    CHECK(graph);
    CHECK(graph.tag() == "graph");
    CHECK(graph.device() == 0);
    CHECK(row_of(saver, "graph").blocks == 3);
    CHECK_THROWS_AS((void)saver.allocate(1000), Misuse); // the region has ended
    for (int i = 0; i < 2; ++i) {
        (void)saver.pause("graph");
        CHECK(machine.driver.handle_bytes() == 0);
        (void)saver.resume("graph");
        CHECK(all_are(machine.driver, large, 20_MiB, 0)); // nothing has run yet
        replay(machine.driver, graph, stream);
        CHECK(all_are(machine.driver, small, 1000, 1));
        CHECK(all_are(machine.driver, large, 20_MiB, 2));
        CHECK(all_are(machine.driver, buffer.data(), buffer.size_bytes(), 3));
    }
    check_books(saver, machine.driver);
    buffer = {};
}

TEST_CASE_FIXTURE(
    OnEither, "close inside a capture is refused as a pause is, on this thread and on another, and nothing is closed") {
    const OwnStream stream{machine.driver};
    void* block = nullptr;
    const auto refused = [&] {
        const std::string text = text_of<Misuse>([&] { saver.close(); });
        CHECK(contains(text, "tag \"graph\" is being captured; end the capture first"));
    };
    {
        const Graph graph = capture(saver, "graph", stream, {.mode = CaptureMode::relaxed}, [&] {
            block = saver.allocate(1_MiB);
            refused();
            std::thread{refused}.join();
        });
        CHECK(saver.owns(block));
        pause_and_resume(saver, "graph");
        saver.deallocate(block);
    }
    saver.close();
    CHECK_THROWS_AS((void)saver.arena("graph"), Misuse);
}

TEST_CASE_FIXTURE(OnStream, "a graph's tag keeps its policy; naming another one is refused" * on_machines) {
    const auto nothing = [] {};
    (void)saver.arena("scratch", Zero{});
    const Graph own = capture(saver, "scratch", stream, nothing);
    CHECK(row_of(saver, "scratch").policy == Zero{}.name());
    const Graph named = capture(saver, "named", stream, {.policy = Discard{}}, nothing);
    CHECK(row_of(saver, "named").policy == Discard{}.name());
    bool ran = false;
    CHECK_THROWS_AS((void)capture(saver, "scratch", stream, {.policy = HostBackup{}}, [&] { ran = true; }), Misuse);
    CHECK(!ran);
    CHECK_THROWS_AS((void)capture(saver, "", stream, nothing), Misuse);
    (void)saver.arena("plain"); // an existing tag keeps its policy
    const Graph plain = capture(saver, "plain", stream, nothing);
    CHECK(row_of(saver, "plain").policy == Discard{}.name());
}

TEST_CASE_FIXTURE(OnMode, "a body that throws leaves the stream, the tag and the saver usable" * on_machines) {
    const Arena arena = saver.arena("graph", Zero{}, {.capacity = 8_MiB});
    void* lost = nullptr;
    const auto broken = [&] {
        const Buffer<char> held{arena, 2_MiB}; // freed during stack unwinding
        lost = saver.allocate(2_MiB);
        fill_on(machine.driver, held.data(), held.size_bytes(), 1, stream);
        throw std::runtime_error{"in the body"};
    };
    CHECK_THROWS_AS((void)capture(saver, "graph", stream, {.mode = mode}, broken), std::runtime_error);
    CHECK(!stream.capturing());
    CHECK(machine.driver.outstanding().graphs == 0);
    CHECK_THROWS_AS((void)saver.allocate(1000), Misuse);
    saver.deallocate(lost);
    std::vector<void*> all; // the memory is available again
    for (int i = 0; i < 4; ++i) all.push_back(arena.allocate(2_MiB));
    for (void* const block : all) saver.deallocate(block);
    CHECK(saver.pause("graph").released_bytes != 0);
    (void)saver.resume();

    void* block = nullptr;
    const Graph graph = capture(saver, "graph", stream, {.mode = mode}, [&] {
        block = saver.allocate(1_MiB);
        fill_on(machine.driver, block, 1_MiB, 9, stream);
    });
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 9));
}

TEST_CASE_FIXTURE(OnStream, "a capture that is broken by a wait says so, and leaves everything usable" * on_machines) {
    MemorySaver stranger{machine.driver}; // unaware of captures of `saver`: its pause breaks them
    const Arena away = stranger.arena("away");
    (void)away.allocate(1_MiB);
    void* block = nullptr;
    const std::string text = text_of<DriverError>([&] {
        (void)capture(saver, "graph", stream, [&] {
            block = saver.allocate(1_MiB);
            saver.deallocate(block);
            CHECK_THROWS_AS((void)stranger.pause(), DriverError);
        });
    });
    CHECK_MESSAGE(contains(text, "invalidates"), text);
    CHECK(!stream.capturing());
    CHECK(row_of(saver, "graph").blocks == 0);
    CHECK_THROWS_AS(saver.deallocate(block), Misuse);
    fill_on(machine.driver, saver.arena("graph").allocate(1_MiB), 1_MiB, 1, stream);
    CHECK(machine.driver.drain().ok());
    const Graph graph = capture(saver, "graph", stream, [] {});
    replay(machine.driver, graph, stream);
    pause_and_resume(saver);
}

TEST_CASE_FIXTURE(OnMode, "while a capture is open pauses are refused, and it stays whole" * on_machines) {
    const OwnStream other{machine.driver};
    const Arena away = saver.arena("away", Zero{});
    const Arena beside = saver.arena("beside");
    (void)away.allocate(2_MiB);
    beside.deallocate(beside.allocate(2_MiB), already_idle);
    (void)saver.pause("away");
    int hooks = 0;
    const Hook hook = saver.before_pause([&](PauseEvent&) { ++hooks; });
    void* block = nullptr;
    const Graph graph = capture(saver, "graph", stream, {.mode = mode, .policy = Zero{}}, [&] {
        block = saver.allocate(1_MiB);
        const std::string text = text_of<Misuse>([&] { (void)saver.pause(); });
        CHECK_MESSAGE(contains(text, "\"graph\" is being captured"), text);
        CHECK_THROWS_AS((void)saver.pause("beside", {.order = already_idle}), Misuse);
        CHECK_THROWS_AS((void)saver.pause("beside", {.order = after(other)}), Misuse);
        CHECK_THROWS_AS((void)saver.trim(), Misuse);
        std::thread{[&] { CHECK_THROWS_AS((void)saver.pause("beside"), Misuse); }}.join();
        // Operations that do not wait for the device still work.
        (void)saver.trim({.order = already_idle});
        (void)saver.resume("away");
        (void)saver.usage();
        fill_on(machine.driver, block, 1_MiB, 4, stream);
    });
    CHECK(hooks == 0);
    CHECK(saver.pause().released_bytes != 0);
    CHECK(hooks == 1);
    (void)saver.resume();
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 4));
}

TEST_CASE_FIXTURE(OnStream, "blocks freed in a capture are its graph's, unless freed as already idle" * on_machines) {
    for (const std::size_t bytes : {std::size_t{300}, std::size_t{5_MiB}}) {
        const Graph graph = capture(saver, "graph", stream, [&] {
            void* const kept = saver.allocate(bytes);
            saver.deallocate(kept); // replays may write to it
            void* const idle = saver.allocate(bytes);
            CHECK(idle != kept);
            saver.deallocate(idle, already_idle);
            void* const again = saver.allocate(bytes);
            CHECK(again == idle);
            fill_on(machine.driver, again, bytes, 4, stream);
        });
        replay(machine.driver, graph, stream);
    }
}

TEST_CASE_FIXTURE(OnStream, "a first capture that fails leaves blocks that the program's captures keep" * on_machines) {
    const Arena arena = saver.arena("graph", HostBackup{});
    void* const kept = arena.allocate(20_MiB);
    GraphRef own;
    REQUIRE(machine.driver.begin_capture(stream, CaptureMode::relaxed).ok());
    fill_on(machine.driver, kept, 20_MiB, 1, stream);
    arena.deallocate(kept, stream); // the end of that graph is unknown
    REQUIRE(machine.driver.end_capture(stream, own).ok());
    CHECK_THROWS_AS((void)capture(saver, "graph", stream, [] { throw std::runtime_error{"no"}; }), std::runtime_error);
    (void)saver.pause("graph"); // fences; free memory is free at once
    (void)saver.resume("graph");
    for (int i = 0; i < 3; ++i) CHECK(arena.allocate(20_MiB) != kept);
    REQUIRE(machine.driver.close_graph(own).ok());
}
} // namespace graph_capture_test
