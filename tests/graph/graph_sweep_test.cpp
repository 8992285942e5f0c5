// Capturing, launching, updating and ending a graph with the 1st, 2nd, ... last driver call failing, once and from
// there on. After each failure, the stream, the tag and the saver are usable, the other graph works, and nothing leaks.
#include "graph/graph_support.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace graph_graph_sweep_test {

using namespace test;

namespace {

constexpr std::size_t block_bytes = 64_KiB;

/// A saver with a graph captured before any failure, and one made by the operation.
struct World {
    using D = MachineDriver;

    World() : driver{driver_of(chosen_machine())}, saver{std::in_place, driver} {
        REQUIRE(driver.open_stream(stream).ok());
        old = capture(*saver, "graph", stream, [&] { body(1); });
        kept = made;
    }
    World(World&&) = delete;

    void body(unsigned char byte, int times = 1) {
        void* const fresh = saver->allocate(block_bytes);
        void* const scratch = saver->allocate(2_MiB);
        for (int i = 0; i < times; ++i) fill_on(driver, fresh, block_bytes, byte, stream);
        fill_on(driver, scratch, 2_MiB, byte, stream);
        saver->deallocate(scratch);
        made = fresh;
    }

    D driver;
    std::optional<MemorySaver<D>> saver;
    StreamRef stream;
    Graph old;
    void* kept = nullptr; // the block that `old` fills
    Graph graph;
    void* made = nullptr; // by the last body that completed
};

/// A capture is left open only if the call that ends it fails permanently.
void end_capture_left_open(World& world, Lasting lasting) {
    bool open = false;
    REQUIRE(world.driver.capturing(world.stream, open).ok());
    if (!open) return;
    CHECK(lasting == Lasting::onwards);
    GraphRef graph;
    if (world.driver.end_capture(world.stream, graph).ok()) CHECK(world.driver.close_graph(graph).ok());
}

/// Checks that `old` behaves as when it was captured.
void check_old(World& world, unsigned char byte) {
    write_pattern(world.driver, world.kept, block_bytes, 77);
    replay(world.driver, world.old, world.stream);
    CHECK(all_are(world.driver, world.kept, block_bytes, byte));
}

void run_sweep(const char* name, const std::function<void(World&)>& operate,
               const std::function<void(World&, const SweepPoint&)>& done) {
    for (const StatusKind kind : {StatusKind::other, StatusKind::out_of_memory, StatusKind::out_of_host_memory}) {
        for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
            (void)sweep(
                {.lasting = lasting, .kind = kind}, [] { return World{}; }, operate,
                [&](World& world, const SweepPoint& point) {
                    CAPTURE(name);
                    CAPTURE(point.text());
                    end_capture_left_open(world, lasting);
                    check_books(*world.saver, world.driver);
                    (void)world.saver->pause(); // no mark of a capture is left
                    (void)world.saver->resume();
                    done(world, point);
                    check_books(*world.saver, world.driver);
                    world.old.reset();
                    world.graph.reset();
                    (void)world.saver->pause();
                    world.saver.reset();
                    CHECK(world.driver.close_stream(world.stream).ok());
                    Outstanding left = world.driver.outstanding();
                    // The driver owns resources that a destructor failed to close: they cannot be closed twice.
                    CHECK(left.events + left.streams + left.graphs <= point.injected);
                    left.events = left.streams = left.graphs = 0;
                    CHECK_MESSAGE(left == Outstanding{}, world.driver.leaks());
                    for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
                });
        }
    }
}

} // namespace

TEST_CASE("sweep: capture" * on_hosts) {
    for (const CaptureMode mode : capture_modes) {
        const auto operate = [&](World& w) {
            w.graph = capture(*w.saver, "new", w.stream, {.mode = mode}, [&] { w.body(2); });
        };
        run_sweep("capture", operate, [&](World& w, const SweepPoint& point) {
            CHECK(bool{w.graph} == !point.error);
            check_old(w, 1);
            if (point.error) operate(w);
            replay(w.driver, w.graph, w.stream);
            CHECK(all_are(w.driver, w.made, block_bytes, 2));
        });
    }
}

TEST_CASE("sweep: update" * on_hosts) {
    for (const int times : {1, 3}) { // in place, and with another executable
        const auto operate = [&](World& w) { w.old.update(w.stream, [&] { w.body(3, times); }); };
        run_sweep("update", operate, [&](World& w, const SweepPoint& point) {
            if (point.error) check_old(w, 1);
            if (point.error) operate(w);
            w.kept = w.made;
            check_old(w, 3);
        });
    }
}

TEST_CASE("sweep: launch" * on_hosts) {
    const auto operate = [](World& w) { w.old.launch(w.stream); };
    run_sweep("launch", operate, [](World& w, const SweepPoint&) { check_old(w, 1); });
}

TEST_CASE("sweep: the end of a graph" * on_hosts) {
    const auto operate = [](World& w) { w.old.reset(); };
    run_sweep("end", operate, [](World& w, const SweepPoint&) {
        w.saver->deallocate(w.kept);
        REQUIRE(w.driver.drain().ok());
        (void)w.saver->pause();
        CHECK(w.saver->bytes_to_resume() == 0); // it keeps nothing any more
    });
}

TEST_CASE("a lost device: a graph ends silently, and its saver closes" * on_hosts) {
    const Checked machine;
    std::size_t told = 0;
    {
        MemorySaver saver{machine.driver,
                          {.events = [&](const Event& event) { told += event.kind == EventKind::ignored ? 1 : 0; }}};
        const OwnStream stream{machine.driver};
        Graph graph = capture(saver, "graph", stream, [&] { saver.deallocate(saver.allocate(1000)); });
        machine.driver.fail({.lasting = Lasting::onwards, .kind = StatusKind::gone});
        CHECK_THROWS_AS(graph.launch(stream), DeviceLost);
        CHECK_THROWS_AS(graph.update(stream, [] {}), DeviceLost);
        CHECK_THROWS_AS((void)capture(saver, "graph", stream, [] {}), DeviceLost);
        const GraphRef native = graph.native();
        graph.reset();
        CHECK(told > 0);
        CHECK_NOTHROW(saver.close());
        machine.driver.heal();
        saver.close();
        CHECK(machine.driver.close_graph(native).ok());
    }
}

} // namespace graph_graph_sweep_test
