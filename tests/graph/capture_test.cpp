// Capturing: where allocations go, what prevents pauses, and the state after a failed capture.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"

namespace graph_capture_test {
using namespace test;

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
