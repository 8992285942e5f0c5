// Capturing: what prevents pauses and captures, on other threads too, and the state after a failed capture.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"

namespace graph_capture_test {
using namespace test;

TEST_CASE_FIXTURE(
    OnEither, "close inside a capture is refused as a pause is, on this thread and on another, and nothing is closed") {
    const OwnStream stream{machine.driver};
    void* block = nullptr;
    const auto refused = [&] {
        check_says<Misuse>("tag \"graph\" is being captured; end the capture first", [&] { saver.close(); });
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
    (void)stranger.arena("away").allocate(1_MiB);
    void* block = nullptr;
    check_says<DriverError>("invalidates", [&] {
        (void)capture(saver, "graph", stream, [&] {
            block = saver.allocate(1_MiB);
            saver.deallocate(block);
            CHECK_THROWS_AS((void)stranger.pause(), DriverError);
        });
    });
    CHECK(!stream.capturing());
    CHECK(row_of(saver, "graph").blocks == 0);
    CHECK_THROWS_AS(saver.deallocate(block), Misuse);
    fill_on(machine.driver, saver.arena("graph").allocate(1_MiB), 1_MiB, 1, stream);
    CHECK(machine.driver.drain().ok());
    const Graph graph = capture(saver, "graph", stream, [] {});
    replay(machine.driver, graph, stream);
    pause_and_resume(saver);
}

TEST_CASE_FIXTURE(OnStream,
                  "a stream can be used after a capture whose body throws, also if the end fails once" * on_hosts) {
    machine.driver.fail({.call = Call::end_capture});
    CHECK_THROWS_AS((void)capture(saver, "graph", stream, [] { throw std::runtime_error{"the body's"}; }),
                    std::runtime_error);
    CHECK(machine.driver.injected(Call::end_capture) == 1);
    CHECK(!stream.capturing());
    replay(machine.driver, capture(saver, "graph", stream, [] {}), stream);
}

TEST_CASE_FIXTURE(OnStream, "a capture that is begun while a pause is under way waits for its end" * on_hosts) {
    (void)saver.arena("paused", Zero{}).allocate(1_MiB);
    Turnstile gate;
    machine.driver.on_call([&](const CallRecord& made) { // its wait would break a capture
        if (made.call == Call::record_device) gate.pass();
    });
    Doing pausing{[&] { CHECK(saver.pause().released_bytes != 0); }};
    gate.await();
    const auto begun = machine.driver.calls(Call::begin_capture);
    Graph graph;
    Doing capturing{[&] {
        graph = capture(saver, "graph", stream, [&] {
            void* const block = saver.allocate(1_MiB);
            fill_on(machine.driver, block, 1_MiB, 1, stream);
        });
    }};
    for (int i = 0; i < 1000; ++i) {
        std::this_thread::yield();
        CHECK(machine.driver.calls(Call::begin_capture) == begun);
    }
    gate.open();
    pausing.join();
    capturing.join();
    machine.driver.on_call({});
    replay(machine.driver, graph, stream);
}

TEST_CASE_FIXTURE(OnTwo, "capturing on a stream of another device is refused, and named" * on_hosts) {
    const OwnStream stream{second.driver};
    const std::string text = text_of<Misuse>([&] { (void)capture(saver, "graph", stream, [] {}); });
    CHECK(contains(text, "device 0"));
    CHECK(contains(text, "\"graph\""));
    CHECK(!stream.capturing());
}

TEST_CASE_FIXTURE(OnStream, "a thread captures one graph at a time" * on_hosts) {
    const OwnStream inside{machine.driver};
    void* block = nullptr;
    Graph older = capture(saver, "older", inside, [] {});
    const Graph graph = capture(saver, "graph", stream, [&] {
        const std::string text = text_of<Misuse>([&] { (void)capture(saver, "inner", inside, [] {}); });
        CHECK_MESSAGE(contains(text, "\"inner\""), text);
        CHECK_MESSAGE(contains(text, "\"graph\""), text);
        CHECK_THROWS_AS(older.update(inside, [] {}), Misuse);
        CHECK(!inside.capturing());
        std::thread{[&] { (void)capture(saver, "inner", inside, [] {}); }}.join(); // another thread may
        block = saver.allocate(1_MiB);
        fill_on(machine.driver, block, 1_MiB, 7, stream);
    });
    replay(machine.driver, graph, stream);
    CHECK(all_are(machine.driver, block, 1_MiB, 7));
    older.update(inside, [] {});
    replay(machine.driver, older, inside);
}

TEST_CASE_FIXTURE(OnStream, "a first capture that fails leaves blocks that the program's captures keep" * on_machines) {
    const Arena arena = saver.arena("graph", HostBackup{});
    void* const kept = arena.allocate(20_MiB);
    OwnCapture own{machine.driver, stream};
    fill_on(machine.driver, kept, 20_MiB, 1, stream);
    arena.deallocate(kept, stream); // the end of that graph is unknown
    REQUIRE(own.end());
    CHECK_THROWS_AS((void)capture(saver, "graph", stream, [] { throw std::runtime_error{"no"}; }), std::runtime_error);
    pause_and_resume(saver, "graph"); // fences; free memory is free at once
    for (int i = 0; i < 3; ++i) CHECK(arena.allocate(20_MiB) != kept);
}

TEST_CASE_FIXTURE(OnSaver, "a block freed with a capturing stream is its graph's, whoever frees it" * on_hosts) {
    const OwnStream first{machine.driver};
    const OwnStream second{machine.driver};
    const Arena arena = saver.arena("data", Zero{}, {.capacity = 32_MiB});
    void* const block = arena.allocate(2_MiB);
    const auto handed_out = [&] {
        CHECK(machine.driver.drain().ok());
        const std::vector<void*> all = all_of(arena, 2_MiB);
        free_all(arena, all);
        return has(all, block);
    };
    Turnstile recorded; // the first capture stays open during the second
    Graph graph;
    Doing capturing{[&] {
        graph = capture(saver, "graph", first, [&] {
            fill_on(machine.driver, block, 2_MiB, 1, first);
            recorded.pass();
        });
    }};
    recorded.await();
    Graph other = capture(saver, "graph", second, [&] { arena.deallocate(block, first); });
    other.reset();
    CHECK(!handed_out());
    recorded.open();
    capturing.join();
    CHECK(!handed_out());
    graph.reset();
    CHECK(handed_out());
}
} // namespace graph_capture_test
