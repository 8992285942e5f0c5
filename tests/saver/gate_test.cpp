// Gates: captured graphs wait, in every replay, only for the bytes that they read next.
#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

namespace saver_gate_test {
using namespace test;

constexpr std::size_t layer = 600 * 1024;

/// A block of four layers, each with its own pattern, and a graph that reads each behind its own gate.
template <class D>
struct Model {
    static constexpr std::size_t layers = 4;

    Model(MemorySaver<D>& owner, const D& on, const std::string& tag, AnyPolicy policy)
        : driver{on}, saver{owner}, stream{on}, block{saver.arena(tag, std::move(policy)), layers * layer} {
        write();
        for (std::size_t i = 0; i < layers; ++i) {
            gates.push_back(saver.gate(at(i), layer));
            outboxes.push_back(std::make_unique<Outbox<D>>(driver, layer));
        }
        graph = capture(saver, "graph", stream, [&] {
            for (std::size_t i = 0; i < layers; ++i) {
                gates[i].before(stream);
                outboxes[i]->fetch(at(i), stream);
            }
        });
    }
    void write() {
        for (std::size_t i = 0; i < layers; ++i) write_bytes(driver, at(i), pattern(layer, i));
    }
    [[nodiscard]] char* at(std::size_t i) const { return block.data() + i * layer; }
    /// Last layer first.
    [[nodiscard]] ResumeAsyncOptions backwards() const {
        return {.first = {{at(3), layer}, {at(2), layer}, {at(0), layer}}};
    }
    void launch() {
        for (auto& outbox : outboxes) outbox->clear();
        graph.launch(stream);
    }
    void finish() { wait_for(driver, stream); }
    [[nodiscard]] bool right() const {
        for (std::size_t i = 0; i < layers; ++i) {
            if (outboxes[i]->bytes() != pattern(layer, i)) return false;
        }
        return true;
    }

    const D& driver;
    MemorySaver<D>& saver;
    OwnStream<D> stream;
    Buffer<char> block;
    std::vector<Gate> gates;
    std::vector<std::unique_ptr<Outbox<D>>> outboxes;
    Graph graph;
};

TEST_CASE_FIXTURE(OnSaver, "gates: a graph launched as soon as resume_async returns reads right bytes" * on_machines) {
    for (const NamedPolicy& keeper : keepers()) {
        const std::string tag = keeper.name;
        CAPTURE(tag);
        Model model{saver, machine.driver, tag, keeper.policy};
        model.launch(); // with nothing in flight
        model.finish();
        CHECK(model.right());
        for (int round = 0; round < 3; ++round) {
            saver.pause(tag);
            const Arrival coming = saver.resume_async(tag, model.backwards());
            model.launch();
            if (round == 1) coming.wait();
            model.finish();
            CHECK(model.right());
        }
        pause_and_resume(saver, tag);
        model.launch();
        model.finish();
        CHECK(model.right());
    }
    check_books(saver, machine.driver);
}

TEST_CASE("gates: a gate waits for its own bytes and for none that come later") {
    const Checked machine{nasty_machine}; // where work runs only when waited for
    MemorySaver saver{machine.driver};
    Model model{saver, machine.driver, "weights", HostBackup{}};
    saver.pause("weights");
    const OwnStream stream{machine.driver};
    const Arrival coming = saver.resume_async("weights", model.backwards());
    model.gates[3].before(stream); // outside a capture: an ordinary wait
    CHECK(bytes_behind(machine.driver, stream, model.at(3), layer) == pattern(layer, 3));
    CHECK_FALSE(coming.done());
}

TEST_CASE("gates: a thousand resumes cost what the first ones cost") {
    for (const bool pageable : {false, true}) {
        CAPTURE(pageable);
        const Checked machine{host_machine};
        MemorySaver saver{machine.driver};
        const AnyPolicy policy = pageable ? HostBackup{.storage = Storage::pageable, .threads = 1} : HostBackup{};
        const Buffer<char> block{saver.arena("weights", policy), 4 * 4096};
        std::vector<Gate> gates;
        for (std::size_t i = 0; i < 4; ++i) gates.push_back(saver.gate(block.data() + i * 4096, 4096));
        const auto made = [&] {
            const auto& driver = machine.driver;
            return driver.calls(Call::record) + driver.calls(Call::open_event) + driver.calls(Call::open_stream);
        };
        std::vector<std::uint64_t> calls;
        std::vector<Outstanding> held;
        for (int round = 0; round < 1000; ++round) {
            const std::uint64_t before = made();
            saver.pause("weights", {.order = already_idle});
            saver.resume_async("weights").wait();
            for (int more = 0; more < 3; ++more) (void)saver.gate(block.data(), 1); // destroyed at once
            calls.push_back(made() - before);
            held.push_back(machine.driver.outstanding());
        }
        CHECK(calls.back() == calls[1]);
        CHECK(held.back() == held[1]);
    }
}

TEST_CASE_FIXTURE(OnSaver, "gates: a freed block is waited for no more" * on_hosts) {
    const Arena arena = saver.arena("weights", HostBackup{});
    const Buffer<char> stays{arena, layer};
    void* const block = arena.allocate(layer);
    const Gate gate = saver.gate(block, layer);
    const Gate other = saver.gate(stays.data(), layer);
    saver.deallocate(block, already_idle);
    void* const again = arena.allocate(layer);
    CHECK(again == block); // another block at the same address
    saver.pause("weights");
    const HeldLane lane{machine.driver, Direction::in};
    const Arrival coming = saver.resume_async("weights");
    const OwnStream stream{machine.driver};
    gate.before(stream);
    wait_for(machine.driver, stream); // would hang
    other.before(stream);
    std::atomic<bool> passed{false};
    Doing waits{[&] {
        wait_for(machine.driver, stream);
        passed = true;
    }};
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    CHECK_FALSE(passed);
    lane.let_go();
    waits.join();
    saver.deallocate(again);
}

TEST_CASE_FIXTURE(OnSaver, "gates: a block that a graph keeps is waited for, as its replays do" * on_hosts) {
    const ManualBackup policy;
    policy.copies->held = false;
    void* const block = saver.arena("weights", policy).allocate(layer);
    write_pattern(machine.driver, block, layer, 6);
    Outbox outbox{machine.driver, layer};
    const OwnStream stream{machine.driver};
    const Graph graph = capture(saver, "graph", stream, [&] {
        saver.gate(block, layer).before(stream);
        outbox.fetch(block, stream);
        saver.deallocate(block); // the graph's from here on
    });
    saver.pause("weights");
    policy.copies->held = true;
    const Arrival coming = saver.resume_async("weights");
    outbox.clear();
    graph.launch(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    policy.copies->finish();
    REQUIRE(machine.driver.drain().ok());
    CHECK(outbox.bytes() == pattern(layer, 6));
}

TEST_CASE_FIXTURE(OnHostSaver, "gates: after a failure, before() throws why the bytes were not restored") {
    const ManualBackup policy;
    const Buffer<char> block{saver.arena("manual", policy), layer};
    const Gate gate = saver.gate(block.data(), layer);
    const OwnStream stream{machine.driver};
    policy.copies->held = false;
    saver.pause("manual");
    policy.copies->fails = true;
    {
        const Arrival coming = saver.resume_async("manual");
        CHECK_THROWS_AS(coming.wait(), DriverError);
        CHECK_THROWS_AS(gate.before(stream), DriverError);
    }
    policy.copies->fails = false;
    saver.resume("manual");
    gate.before(stream);
}

TEST_CASE("gates: close and drop while graphs wait" * on_hosts) {
    for (const NamedPolicy& keeper : keepers()) {
        CAPTURE(keeper.name);
        for (const bool drop : {false, true}) {
            const Checked machine;
            MemorySaver saver{machine.driver};
            const Buffer<char> block{saver.arena("weights", keeper.policy), 8 * layer};
            const Gate last = saver.gate(block.data() + 7 * layer, layer);
            const OwnStream stream{machine.driver};
            saver.pause("weights");
            const Arrival coming = saver.resume_async("weights");
            last.before(stream);
            CHECK(machine.driver.fill(address_of(block.data()) + 7 * layer, 1, 1, stream).ok());
            if (drop) {
                saver.drop("weights");
            } else {
                saver.close();
            }
            CHECK(machine.driver.drain().ok());
            CHECK(contains(text_of<Misuse>([&] { last.before(stream); }), drop ? "dropped" : "closed"));
        }
    }
}

TEST_CASE_FIXTURE(OnSaver, "gates: a graph keeps the gates that it waits for; an update releases them" * on_hosts) {
    const Buffer<char> block{saver.arena("weights", HostBackup{}), layer};
    write_pattern(machine.driver, block.data(), layer, 5);
    Outbox outbox{machine.driver, layer};
    const OwnStream stream{machine.driver};
    const std::size_t events = machine.driver.outstanding().events;
    std::optional<Gate> gate{saver.gate(block.data(), layer)};
    Graph graph = capture(saver, "graph", stream, [&] {
        gate->before(stream);
        outbox.fetch(block.data(), stream);
    });
    gate.reset();
    CHECK(machine.driver.outstanding().events == events + 1);
    saver.pause("weights");
    {
        const Arrival coming = saver.resume_async("weights");
        outbox.clear();
        replay(machine.driver, graph, stream);
        CHECK(outbox.bytes() == pattern(layer, 5));
    }
    CHECK_THROWS_AS(graph.update(stream, [&]() -> void { throw 7; }), int);
    CHECK(machine.driver.outstanding().events == events + 1);
    graph.update(stream, [&] { outbox.fetch(block.data(), stream); });
    CHECK(machine.driver.outstanding().events == events);
    gate = saver.gate(block.data(), 1);
    graph.update(stream, [&] { gate->before(stream); });
    gate.reset();
    graph.reset();
    CHECK(machine.driver.outstanding().events == events);
}

TEST_CASE("gates: a graph that was captured by other means") {
    const Checked machine{nasty_machine};
    MemorySaver saver{machine.driver};
    const Buffer<char> block{saver.arena("weights", FileBackup{.directory = "/tmp"}), layer};
    write_pattern(machine.driver, block.data(), layer, 5);
    Outbox outbox{machine.driver, layer};
    const OwnStream stream{machine.driver};
    for (const CaptureMode mode : capture_modes) {
        const Gate gate = saver.gate(block.data(), layer);
        REQUIRE(machine.driver.begin_capture(stream, mode).ok());
        const Gate inside = saver.gate(block.data(), 4096); // keeps the capture valid
        gate.before(stream);
        inside.before(stream);
        outbox.fetch(block.data(), stream);
        GraphRef graph;
        REQUIRE(machine.driver.end_capture(stream, graph).ok());
        saver.pause("weights");
        const Arrival coming = saver.resume_async("weights");
        outbox.clear();
        REQUIRE(machine.driver.launch(graph, stream).ok());
        CHECK(machine.driver.drain().ok());
        CHECK(outbox.bytes() == pattern(layer, 5));
        CHECK(machine.driver.close_graph(graph).ok());
    }
}

TEST_CASE("gates: where nothing can be pinned, resume_async waits for gated bytes") {
    const Checked machine{HostDriver{1_GiB, {.poison = true, .pin_limit = 0}}};
    MemorySaver saver{machine.driver};
    const Buffer<char> block{saver.arena("weights", FileBackup{.directory = "/tmp"}), layer};
    write_pattern(machine.driver, block.data(), layer, 5);
    const Gate gate = saver.gate(block.data(), layer);
    saver.pause("weights");
    const Arrival coming = saver.resume_async("weights");
    const OwnStream stream{machine.driver};
    gate.before(stream);
    CHECK(bytes_behind(machine.driver, stream, block.data(), layer) == pattern(layer, 5));
}

TEST_CASE_FIXTURE(OnHostSaver, "gates: misuse") {
    const Arena arena = saver.arena("weights", HostBackup{});
    void* const block = arena.allocate(layer);
    void* const second = arena.allocate(layer);
    const OwnStream stream{machine.driver};
    int value = 0;
    const auto text = [&](const void* at, std::size_t bytes) {
        return text_of<Misuse>([&] { (void)saver.gate(at, bytes); });
    };
    CHECK(contains(text(&value, 4), "no tag of this saver contains this pointer"));
    CHECK(contains(text(nullptr, 4), "no tag of this saver contains this pointer"));
    CHECK(contains(text(block, 0), "the size is 0"));
    CHECK(contains(text(block, layer + 1), "past the end of its block"));
    CHECK(contains(text(static_cast<char*>(block) + 1, layer), "past the end of its block"));
    CHECK(contains(text(block, ~std::size_t{0}), "tag \"weights\""));
    CHECK(contains(text_of<Misuse>([&] { (void)arena.gate(&value, 4); }), "does not belong to this tag"));
    saver.deallocate(block, already_idle);
    CHECK(contains(text(block, 4), "no live block contains this address"));
    const Gate nothing;
    CHECK_FALSE(static_cast<bool>(nothing));
    CHECK_THROWS_AS(nothing.before(stream), Misuse);
    machine.driver.fail({.call = Call::follow_outside, .kind = StatusKind::unsupported});
    CHECK_THROWS_AS((void)saver.gate(second, 4), Unavailable);
    const Gate gate = saver.gate(second, 4);
    CHECK(gate == Gate{gate});
    CHECK_FALSE(gate == saver.gate(second, 4));
    {
        const Region outside = saver.outside();
        void* const plain = saver.allocate(4096);
        const std::uint64_t calls = machine.driver.calls();
        const Gate open = saver.gate(plain, 4096);
        open.before(stream);
        CHECK(machine.driver.calls() == calls);
        CHECK(contains(text(plain, 4097), "not bytes of a live block"));
        saver.deallocate(plain);
    }
    saver.close();
    CHECK(contains(text_of<Misuse>([&] { gate.before(stream); }), "closed"));
}
} // namespace saver_gate_test
