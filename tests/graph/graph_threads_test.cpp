// Concurrent captures and pauses on different threads, and tests that only a host machine supports.
#include "graph/graph_support.hpp"

namespace graph_graph_threads_test {
using namespace test;

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

TEST_CASE_FIXTURE(OnSaver, "a block freed with a capturing stream is its graph's, whoever frees it" * on_hosts) {
    const OwnStream first{machine.driver};
    const OwnStream second{machine.driver};
    const Arena arena = saver.arena("data", Zero{}, {.capacity = 32_MiB});
    void* const block = arena.allocate(2_MiB);
    const auto handed_out = [&] { // by allocating everything that fits into the arena
        CHECK(machine.driver.drain().ok());
        std::vector<void*> all;
        try {
            for (;;) all.push_back(arena.allocate(2_MiB));
        } catch (const Misuse&) {
        }
        const bool found = std::find(all.begin(), all.end(), block) != all.end();
        for (void* const each : all) arena.deallocate(each, already_idle);
        return found;
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
} // namespace graph_graph_threads_test
