// Gates: captured graphs wait, in every replay, only for the bytes that they read next.
#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"
#include "support/manual_backup.hpp"

namespace saver_gate_test {
using namespace test;

constexpr std::size_t layer = 600 * 1024;

/// A block of four layers and a graph that reads each behind its own gate.
struct Model {
    static constexpr std::size_t layers = 4;

    Model(MemorySaver<MachineDriver>& owner, const MachineDriver& on, const std::string& tag, AnyPolicy policy)
        : saver{owner}, block{on, saver.arena(tag, std::move(policy)), layers * layer}, stream{on} {
        std::vector<Gate> gates;
        for (std::size_t i = 0; i < layers; ++i) gates.push_back(saver.gate(at(i), layer));
        graph = capture(saver, "graph", stream, [&] {
            for (std::size_t i = 0; i < layers; ++i) {
                gates[i].before(stream);
                outboxes.push_back(std::make_unique<Outbox>(on, layer));
                outboxes[i]->fetch(at(i), stream);
            }
        });
    }
    [[nodiscard]] unsigned char* at(std::size_t i) const { return block.data() + i * layer; }
    /// Last layer first.
    [[nodiscard]] ResumeAsyncOptions backwards() const {
        return {.first = {{at(3), layer}, {at(2), layer}, {at(0), layer}}};
    }
    /// Launches, meanwhile does something else, and returns whether each layer was read.
    bool right(const std::function<void()>& meanwhile = [] {}) const {
        for (const auto& outbox : outboxes) outbox->clear();
        graph.launch(stream);
        meanwhile();
        wait_for(block.driver, stream);
        std::vector<unsigned char> read;
        for (const auto& outbox : outboxes) {
            const auto bytes = outbox->bytes();
            read.insert(read.end(), bytes.begin(), bytes.end());
        }
        return read == pattern(layers * layer, block.seed);
    }

    MemorySaver<MachineDriver>& saver;
    Filled<MachineDriver> block;
    OwnStream<MachineDriver> stream;
    std::vector<std::unique_ptr<Outbox>> outboxes;
    Graph graph;
};

TEST_CASE_FIXTURE(OnSaver, "gates: a graph launched as soon as resume_async returns reads right bytes" * on_machines) {
    const NamedPolicy keeper = each_of(keepers());
    const Model model{saver, machine.driver, "weights", keeper.policy};
    CHECK(model.right()); // with nothing in flight
    for (int round = 0; round < 3; ++round) {
        saver.pause("weights");
        const Arrival coming = saver.resume_async("weights", model.backwards());
        CHECK(model.right([&] {
            if (round == 1) coming.wait();
        }));
    }
    pause_and_resume(saver, "weights");
    CHECK(model.right());
    check_books(saver, machine.driver);
}

TEST_CASE("gates: a gate waits for its own bytes and for none that come later") {
    const Checked machine{nasty_machine}; // where work runs only when waited for
    MemorySaver saver{machine.driver};
    const Model model{saver, machine.driver, "weights", HostBackup{}};
    const Gate gate = saver.gate(model.at(3), layer);
    saver.pause("weights");
    const OwnStream stream{machine.driver};
    const Arrival coming = saver.resume_async("weights", model.backwards());
    gate.before(stream); // outside a capture: an ordinary wait
    CHECK(bytes_behind(machine.driver, stream, model.at(3), layer) ==
          part_of(pattern(4 * layer, model.block.seed), 3 * layer, layer));
    CHECK_FALSE(coming.done());
}

TEST_CASE_FIXTURE(OnHostSaver, "gates: a thousand resumes cost what the first ones cost") {
    const bool pageable = either("pageable", "pinned");
    const AnyPolicy policy = pageable ? HostBackup{.storage = Storage::pageable, .threads = 1} : HostBackup{};
    const Buffer<char> block{saver.arena("weights", policy), 4 * 4096};
    std::vector<Gate> gates;
    for (std::size_t i = 0; i < 4; ++i) gates.push_back(saver.gate(block.data() + i * 4096, 4096));
    const auto made = [&] {
        const auto& driver = machine.driver;
        return driver.calls(Call::record) + driver.calls(Call::open_event) + driver.calls(Call::open_stream);
    };
    std::vector<std::pair<std::uint64_t, Outstanding>> after; // calls of each round, and what is held
    for (int round = 0; round < 1000; ++round) {
        const std::uint64_t before = made();
        saver.pause("weights", {.order = already_idle});
        saver.resume_async("weights").wait();
        for (int more = 0; more < 3; ++more) (void)saver.gate(block.data(), 1); // destroyed at once
        after.emplace_back(made() - before, machine.driver.outstanding());
    }
    CHECK((after.back() == after[1]));
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
    Doing waits{[&] { wait_for(machine.driver, stream); }};
    std::this_thread::sleep_for(50ms);
    CHECK_FALSE(waits.over());
    lane.let_go();
    waits.join();
    saver.deallocate(again);
}

TEST_CASE_FIXTURE(OnStream, "gates: a block that a graph keeps is waited for, as its replays do" * on_hosts) {
    const ManualBackup policy;
    policy.copies->held = false;
    void* const block = saver.arena("weights", policy).allocate(layer);
    write_pattern(machine.driver, block, layer, 6);
    Outbox outbox{machine.driver, layer};
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
    std::this_thread::sleep_for(20ms);
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

TEST_CASE_FIXTURE(OnStream, "gates: close and drop while graphs wait" * on_hosts) {
    std::vector<NamedPolicy> all = keepers();
    for (std::size_t i = all.size(); i-- > 0;) all.push_back({all[i].name + ", dropped", all[i].policy});
    const NamedPolicy keeper = each_of(all);
    const bool drop = keeper.name.ends_with(", dropped");
    const Buffer<char> block{saver.arena("weights", keeper.policy), 8 * layer};
    char* const end = block.data() + 7 * layer;
    const Gate last = saver.gate(end, layer);
    saver.pause("weights");
    const Arrival coming = saver.resume_async("weights");
    last.before(stream);
    CHECK(machine.driver.fill(address_of(end), 1, 1, stream).ok());
    drop ? saver.drop("weights") : saver.close();
    CHECK(machine.driver.drain().ok());
    check_says<Misuse>(drop ? "dropped" : "closed", [&] { last.before(stream); });
}

TEST_CASE_FIXTURE(OnStream, "gates: a graph keeps the gates that it waits for; an update releases them" * on_hosts) {
    const Filled block{machine.driver, saver.arena("weights", HostBackup{}), layer, 5};
    Outbox outbox{machine.driver, layer};
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
    const Filled block{machine.driver, saver.arena("weights", FileBackup{.directory = "/tmp"}), layer, 5};
    Outbox outbox{machine.driver, layer};
    const OwnStream stream{machine.driver};
    for (const CaptureMode mode : capture_modes) {
        const Gate gate = saver.gate(block.data(), layer);
        OwnCapture graph{machine.driver, stream, mode};
        const Gate inside = saver.gate(block.data(), 4096); // keeps the capture valid
        gate.before(stream);
        inside.before(stream);
        outbox.fetch(block.data(), stream);
        REQUIRE(graph.end());
        saver.pause("weights");
        const Arrival coming = saver.resume_async("weights");
        outbox.clear();
        graph.replay();
        CHECK(outbox.bytes() == pattern(layer, 5));
    }
}

TEST_CASE("gates: where nothing can be pinned, resume_async waits for gated bytes") {
    const Checked machine{HostDriver{1_GiB, {.poison = true, .pin_limit = 0}}};
    MemorySaver saver{machine.driver};
    const Filled block{machine.driver, saver.arena("weights", FileBackup{.directory = "/tmp"}), layer, 5};
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
    const auto refused = [&](const char* why, const void* at, std::size_t bytes) {
        check_says<Misuse>(why, [&] { (void)saver.gate(at, bytes); });
    };
    for (const void* at : {static_cast<const void*>(&value), static_cast<const void*>(nullptr)})
        refused("no tag of this saver contains this pointer", at, 4);
    refused("the size is 0", block, 0);
    refused("past the end of its block", block, layer + 1);
    refused("past the end of its block", static_cast<char*>(block) + 1, layer);
    refused("tag \"weights\"", block, ~std::size_t{0});
    check_says<Misuse>("does not belong to this tag", [&] { (void)arena.gate(&value, 4); });
    saver.deallocate(block, already_idle);
    refused("no live block contains this address", block, 4);
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
        refused("not bytes of a live block", plain, 4097);
        saver.deallocate(plain);
    }
    saver.close();
    check_says<Misuse>("closed", [&] { gate.before(stream); });
}
} // namespace saver_gate_test
