// A strict HostDriver detects bugs that a GPU would punish or silently get wrong. Each test runs one program twice: on
// a correct machine, which must detect nothing, and with one planted bug, which must be detected.
#include "backup/file_source_support.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

namespace planted_planted_bugs_test {
using namespace test;

/// The bug of a machine, as a library or a driver might have it.
enum class Lie : unsigned char {
    none,
    device_not_waited,    ///< a mark of the device's work that marks nothing
    wait_returns_at_once, ///< a wait for an event that does not wait
    follow_forgotten,     ///< a stream that does not follow
    drain_forgotten,      ///< a wait for the device that does not wait
    query_always_passed,  ///< every event is reported as completed
    wrong_stream_marked,  ///< marks the default stream instead of the given one
    unmapped_twice,
    unmap_forgotten,   ///< the pages are released but still mapped
    half_unmapped,     ///< the range is wrong
    release_forgotten, ///< a handle leaks
    released_twice,
    access_forgotten,
    map_forgotten,
    half_filled, ///< the range is wrong
    filled_too_far,
    event_leaked,
    files_all_alike,    ///< all files are reported as the same file
    drain_marks_device, ///< waits in a way that breaks captures
    gate_forgotten,     ///< a graph that does not wait for events recorded outside it
};

/// A machine with the planted bug.
struct LyingMachine : DeviceAround {
    LyingMachine(AnyDriver inner, Lie lie) : DeviceAround{std::move(inner)}, lie_{lie} {}

    Status record_device(EventRef event) noexcept override {
        return lie_ == Lie::device_not_waited ? Status{} : DeviceAround::record_device(event);
    }
    Status wait(EventRef event) noexcept override {
        return lie_ == Lie::wait_returns_at_once ? Status{} : DeviceAround::wait(event);
    }
    Status follow(StreamRef stream, EventRef event) noexcept override {
        return lie_ == Lie::follow_forgotten ? Status{} : DeviceAround::follow(stream, event);
    }
    Status follow_outside(StreamRef stream, EventRef event) noexcept override {
        return lie_ == Lie::gate_forgotten ? Status{} : DeviceAround::follow_outside(stream, event);
    }
    Status drain() noexcept override {
        if (lie_ == Lie::drain_forgotten) return {};
        if (lie_ != Lie::drain_marks_device) return DeviceAround::drain();
        EventRef event;
        Status status = open_event({}, event);
        if (!status.ok()) return status;
        status = DeviceAround::record_device(event);
        if (status.ok()) status = DeviceAround::wait(event);
        const Status closed = DeviceAround::close_event(event);
        return status.ok() ? closed : status;
    }
    Status query(EventRef event, bool& passed) noexcept override {
        if (lie_ != Lie::query_always_passed) return DeviceAround::query(event, passed);
        passed = true;
        return {};
    }
    Status record(EventRef event, StreamRef stream) noexcept override {
        return DeviceAround::record(event, lie_ == Lie::wrong_stream_marked ? StreamRef{} : stream);
    }
    Status unmap(Address address, std::size_t bytes) noexcept override {
        if (lie_ == Lie::unmap_forgotten) return {};
        if (lie_ == Lie::half_unmapped) return DeviceAround::unmap(address, bytes / 2);
        const Status status = DeviceAround::unmap(address, bytes);
        if (lie_ == Lie::unmapped_twice) (void)DeviceAround::unmap(address, bytes);
        return status;
    }
    Status release(PageHandle handle) noexcept override {
        if (lie_ == Lie::release_forgotten) return {};
        const Status status = DeviceAround::release(handle);
        if (lie_ == Lie::released_twice) (void)DeviceAround::release(handle);
        return status;
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) noexcept override {
        return lie_ == Lie::map_forgotten ? Status{} : DeviceAround::map(address, bytes, handle);
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        return lie_ == Lie::access_forgotten ? Status{} : DeviceAround::allow_access(address, bytes, rights);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        if (lie_ == Lie::half_filled) bytes /= 2;
        if (lie_ == Lie::filled_too_far) bytes += 1;
        return DeviceAround::fill(to, byte, bytes, stream);
    }
    Status file_facts(FileRef file, FileFacts& facts) noexcept override {
        const Status status = DeviceAround::file_facts(file, facts);
        if (lie_ == Lie::files_all_alike && status.ok()) facts = {1, 1, facts.bytes, 1};
        return status;
    }
    Status close_event(EventRef event) noexcept override {
        return lie_ == Lie::event_leaked ? Status{} : DeviceAround::close_event(event);
    }

private:
    Lie lie_;
};

using LyingDriver = test::HostWith<LyingMachine>;

template <class Policy = Discard>
using ArenaOf = TaggedArena<LyingDriver, Policy>;

/// What a run detected.
struct Outcome {
    bool right_bytes = true;
    std::string thrown;
    std::vector<std::string> violations;
    HostCounts left; ///< after everything was released

    [[nodiscard]] bool says(const std::string& text) const {
        return std::any_of(violations.begin(), violations.end(),
                           [&](const std::string& one) { return contains(one, text); });
    }
};

/// A program's view of the machine: work runs late, fresh pages contain garbage, and the program itself has no bug.
struct Machine {
    const LyingDriver lying;
    const HostDriver honest;
    const bool lies;
    Outcome outcome{};

    /// Enqueues work that writes `byte` over a block.
    void write_later(StreamRef stream, void* block, std::size_t bytes, int byte) const {
        REQUIRE(honest.enqueue(stream, address_of(block), bytes, [=] { std::memset(block, byte, bytes); }).ok());
    }
    void expect_pattern(const void* block, std::size_t bytes, std::uint64_t seed) {
        outcome.right_bytes = outcome.right_bytes && has_pattern(honest, block, bytes, seed);
    }
    void expect_zero(const void* block, std::size_t bytes) {
        outcome.right_bytes = outcome.right_bytes && all_are(honest, block, bytes, 0);
    }
};

struct OpenStream : OwnStream<HostDriver> {
    explicit OpenStream(const Machine& machine) : OwnStream{machine.honest} {}
};

template <class Program>
Outcome run(Lie lie, Program&& program) {
    const HostDriver honest{512_MiB, {.poison = true, .late = true, .survive_faults = true}};
    const LyingDriver driver{honest, lie};
    Machine machine{driver, honest, lie != Lie::none};
    try {
        program(machine);
    } catch (const Error& error) {
        machine.outcome.thrown = error.what();
    }
    CHECK(honest.drain().ok());
    machine.outcome.violations = driver.violations();
    machine.outcome.left = driver.counts();
    return machine.outcome;
}

/// Returns the outcome with the bug, after checking that a run without it detects nothing.
template <class Program>
Outcome planted_in(Lie lie, Program&& program) {
    const Outcome honest = run(Lie::none, program);
    CHECK(honest.right_bytes);
    CHECK_MESSAGE(honest.thrown.empty(), honest.thrown);
    for (const std::string& text : honest.violations) FAIL_CHECK(text);
    CHECK(honest.left == HostCounts{});
    return run(lie, program);
}

void pause_and_resume(Machine& machine) {
    ArenaOf<Zero> arena{machine.lying, "cycle"};
    void* const block = arena.allocate(3_MiB);
    write_pattern(machine.honest, block, 3_MiB, 1);
    machine.expect_pattern(block, 3_MiB, 1);
    test::pause_and_resume(arena);
    machine.expect_zero(block, 3_MiB);
}

/// Frees a block to which a stream still writes, in an order, and allocates as much again.
template <class... Order>
void reuse(Machine& machine, StreamRef stream, Order... order) {
    ArenaOf<> arena{machine.lying, "reused"};
    void* const old = arena.allocate(32_MiB);
    machine.write_later(stream, old, 32_MiB, 0x11);
    arena.deallocate(old, order...);
    void* const block = arena.allocate(32_MiB);
    write_pattern(machine.honest, block, 32_MiB, 2);
    CHECK(machine.honest.drain().ok()); // completes the old work at the latest
    machine.expect_pattern(block, 32_MiB, 2);
}

void reuse_after_stream(Machine& machine) {
    const OpenStream stream{machine};
    reuse(machine, stream, StreamRef{stream});
}

TEST_CASE("no wait for the device before memory is released") {
    const auto program = [](Machine& machine) {
        ArenaOf<> arena{machine.lying, "working"};
        const OpenStream stream{machine};
        void* const block = arena.allocate(4_MiB);
        machine.write_later(stream, block, 4_MiB, 1);
        (void)arena.pause();
    };
    CHECK(planted_in(Lie::device_not_waited, program).says("unmap of memory in use by unfinished work"));
}

TEST_CASE("a restore that is not waited for") {
    const auto program = [](Machine& machine) {
        ArenaOf<Zero> arena{machine.lying, "restored"};
        void* const block = arena.allocate(4_MiB);
        (void)arena.pause({.order = already_idle});
        (void)arena.resume();
        machine.expect_zero(block, 4_MiB);
    };
    CHECK(!planted_in(Lie::wait_returns_at_once, program).right_bytes);
}

TEST_CASE("a load that is not waited for") {
    const ModelFiles files;
    const std::string path = files.put("model", pattern(9_MiB, 1));
    const auto program = [&](Machine& machine) {
        ArenaOf<FileSource> arena{machine.lying, "loaded", {.threads = 1, .ring_bytes = 4_MiB}};
        void* const block = arena.allocate(9_MiB);
        arena.load(block, 9_MiB, path);
        machine.expect_pattern(block, 9_MiB, 1);
    };
    CHECK(!planted_in(Lie::wait_returns_at_once, program).right_bytes);
}

TEST_CASE("a file that was replaced while its bytes were away") {
    const ModelFiles files;
    const auto program = [&](Machine& machine) {
        const std::string path = files.put("model", pattern(1_MiB, 1));
        ArenaOf<FileSource> arena{machine.lying, "loaded", {.threads = 1, .ring_bytes = 4_MiB}};
        void* const block = arena.allocate(1_MiB);
        arena.load(block, 1_MiB, path);
        (void)arena.pause();
        std::filesystem::rename(path, files.path("aside"));
        files.put("model", pattern(1_MiB, 2));
        try {
            (void)arena.resume();
        } catch (const SourceChanged&) {
            std::filesystem::rename(files.path("aside"), path);
            (void)arena.resume();
        }
        machine.expect_pattern(block, 1_MiB, 1);
    };
    CHECK(!planted_in(Lie::files_all_alike, program).right_bytes);
}

TEST_CASE("an unmap before the copy is done") {
    const auto program = [](Machine& machine) {
        const ManualBackup policy;
        policy.copies->held = false;
        ArenaOf<ManualBackup> arena{machine.lying, "saved", policy};
        (void)arena.allocate(4_MiB);
        (void)arena.pause({.order = already_idle});
    };
    CHECK(planted_in(Lie::wait_returns_at_once, program).says("unmap of memory in use by unfinished work"));
}

TEST_CASE("a stream that does not follow the bytes that arrive for it") {
    const auto program = [](Machine& machine) {
        MemorySaver saver{machine.lying};
        const OpenStream stream{machine};
        const Arena arena = saver.arena("arriving", HostBackup{.threads = 1});
        void* const block = arena.allocate(4_MiB);
        write_pattern(machine.honest, block, 4_MiB, 1);
        (void)saver.pause();
        std::vector<unsigned char> seen(4_MiB);
        const Arrival coming = saver.resume_async("arriving");
        coming.before(stream, block, 4_MiB);
        CHECK(machine.honest.copy_to_host(seen.data(), address_of(block), seen.size(), stream).ok());
        wait_for(machine.honest, stream);
        machine.outcome.right_bytes = seen == pattern(4_MiB, 1);
    };
    CHECK(!planted_in(Lie::follow_forgotten, program).right_bytes);
}

TEST_CASE("a gate that opens too soon") {
    const auto program = [](Machine& machine) {
        MemorySaver saver{machine.lying};
        const OpenStream stream{machine};
        const Arena arena = saver.arena("gated", HostBackup{.threads = 1});
        void* const block = arena.allocate(4_MiB);
        write_pattern(machine.honest, block, 4_MiB, 1);
        std::vector<unsigned char> seen(4_MiB);
        const Gate gate = saver.gate(block, 4_MiB);
        const Graph graph = capture(saver, "graph", stream, [&] {
            gate.before(stream);
            CHECK(machine.honest.copy_to_host(seen.data(), address_of(block), seen.size(), stream).ok());
        });
        (void)saver.pause("gated");
        StreamRef lane;
        REQUIRE(machine.honest.lane(Direction::in, lane).ok());
        REQUIRE(machine.honest.hold(lane).ok()); // delays the copies
        const Arrival coming = saver.resume_async("gated");
        graph.launch(stream);
        EventRef event;
        REQUIRE(machine.honest.open_event(stream, event).ok());
        CHECK(machine.honest.record(event, stream).ok());
        bool passed = false;
        for (int i = 0; i < (machine.lies ? 10'000 : 20) && !passed; ++i) {
            CHECK(machine.honest.query(event, passed).ok());
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
        REQUIRE(machine.honest.let_go(lane).ok());
        CHECK(machine.honest.wait(event).ok());
        CHECK(machine.honest.close_event(event).ok());
        machine.outcome.right_bytes = seen == pattern(4_MiB, 1);
    };
    CHECK(!planted_in(Lie::gate_forgotten, program).right_bytes);
}

TEST_CASE("a stale block after reuse: the device was not waited for") {
    const auto program = [](Machine& machine) {
        const OpenStream stream{machine};
        reuse(machine, stream);
    };
    CHECK(!planted_in(Lie::drain_forgotten, program).right_bytes);
}

TEST_CASE("reuse before the stream passed, or after another one passed") {
    CHECK(!planted_in(Lie::query_always_passed, reuse_after_stream).right_bytes);
    CHECK(!planted_in(Lie::wrong_stream_marked, reuse_after_stream).right_bytes);
}

TEST_CASE("a cycle of pause and resume with one wrong call") {
    const auto planted = [](Lie lie) { return planted_in(lie, pause_and_resume); };
    SUBCASE("a double unmap") { CHECK(planted(Lie::unmapped_twice).says("unmap of addresses that are not mapped")); }
    SUBCASE("a double release") { CHECK(planted(Lie::released_twice).says("release of a handle that does not exist")); }
    SUBCASE("an unmap that is forgotten") {
        const Outcome outcome = planted(Lie::unmap_forgotten);
        CHECK(outcome.says("map over mapped addresses"));
        CHECK(outcome.left.held_bytes != 0); // released, but still mapped
        CHECK(!outcome.thrown.empty());
    }
    SUBCASE("an unmap of a wrong range") {
        const Outcome outcome = planted(Lie::half_unmapped);
        CHECK(outcome.says("unmap of addresses that are not mapped, or of part of a mapping"));
        CHECK(!outcome.thrown.empty());
    }
    SUBCASE("pages that are not mapped") {
        const Outcome outcome = planted(Lie::map_forgotten);
        CHECK(outcome.says("allow_access of addresses that are not mapped"));
        CHECK(!outcome.thrown.empty());
    }
    SUBCASE("a handle that leaks") {
        const Outcome outcome = planted(Lie::release_forgotten);
        CHECK(outcome.left.handles != 0);
        CHECK(outcome.left.held_bytes != 0);
    }
    SUBCASE("an event that leaks") { CHECK(planted(Lie::event_leaked).left.events != 0); }
    SUBCASE("a fill of too little") { CHECK(!planted(Lie::half_filled).right_bytes); }
    SUBCASE("a fill of too much") { CHECK(contains(planted(Lie::filled_too_far).thrown, "HOST_ERROR_INVALID_VALUE")); }
}

TEST_CASE("a missed access grant") {
    const auto program = [](Machine& machine) {
        ArenaOf<> arena{machine.lying, "no access"};
        const OpenStream stream{machine};
        void* const block = arena.allocate(2_MiB);
        machine.write_later(stream, block, 2_MiB, 1);
        CHECK(machine.honest.drain().ok());
    };
    CHECK(planted_in(Lie::access_forgotten, program).says("work on memory that is not mapped, or without access"));
}

TEST_CASE("a wait that breaks a capture") {
    const auto program = [](Machine& machine) {
        ArenaOf<> arena{machine.lying, "captured"};
        const OpenStream stream{machine};
        arena.deallocate(arena.allocate(32_MiB));
        REQUIRE(machine.honest.begin_capture(stream, CaptureMode::relaxed).ok());
        (void)succeeds<Error>([&] { (void)arena.allocate(32_MiB); }); // the capture says what matters
        GraphRef graph;
        const Status ended = machine.honest.end_capture(stream, graph);
        if (ended.ok()) CHECK(machine.honest.close_graph(graph).ok());
        if (!ended.ok()) machine.outcome.thrown = ended.name;
    };
    CHECK(contains(planted_in(Lie::drain_marks_device, program).thrown, "CAPTURE_INVALIDATED"));
}

// Bugs of programs, on a correct machine.

TEST_CASE("work on memory that is paused") {
    const auto program = [](bool paused) {
        return run(Lie::none, [&](Machine& machine) {
            ArenaOf<> arena{machine.lying, "paused"};
            const OpenStream stream{machine};
            void* const block = arena.allocate(2_MiB);
            if (paused) (void)arena.pause();
            machine.write_later(stream, block, 2_MiB, 1);
            CHECK(machine.honest.drain().ok());
        });
    };
    CHECK(program(false).violations.empty());
    CHECK(program(true).says("work on memory that is not mapped"));
}

TEST_CASE("memory freed as idle that is not") {
    const Outcome outcome = run(Lie::none, [](Machine& machine) {
        const OpenStream stream{machine};
        reuse(machine, stream, already_idle);
    });
    CHECK(!outcome.right_bytes);
}

/// A HostBackup that claims to ask before it writes, and does not.
struct Rude {
    struct Slot {
        void prepare(const LiveSet& live) { kept.prepare(live); }
        Ticket save(const LiveSet& live) { return kept.save(live); }
        Ticket restore(LiveSet live) {
            live.before_write = {};
            return kept.restore(live);
        }
        static constexpr bool asks_before_write = true;
        Status resumed() noexcept { return kept.resumed(); }
        void forget(std::uint64_t serial) noexcept { kept.forget(serial); }
        void invalidate() noexcept { kept.invalidate(); }
        [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return kept.backed_up_bytes(); }
        StoredSlot kept;
    };
    [[nodiscard]] std::string_view name() const noexcept { return "rude"; }
    [[nodiscard]] Slot open(const AnyDriver& driver) const { return {HostBackup{}.open(driver)}; }
    friend bool operator==(const Rude&, const Rude&) = default;
};

TEST_CASE("a page written to before its bytes were safe") {
    const auto program = [](const AnyPolicy& comes) {
        return run(Lie::none, [&](Machine& machine) {
            MemorySaver saver{machine.lying};
            void* const a = saver.arena("a", comes).allocate(32_MiB);
            write_pattern(machine.honest, a, 32_MiB, 1);
            saver.pause("a");
            void* const b = saver.arena("b", HostBackup{}).allocate(32_MiB);
            write_pattern(machine.honest, b, 32_MiB, 2);
            saver.prepare("b");
            for (int i = 0; i < 2; ++i) {
                CHECK(saver.exchange("b", "a").handed_bytes == 32_MiB);
                machine.expect_pattern(a, 32_MiB, 1);
                saver.exchange("a", "b");
                machine.expect_pattern(b, 32_MiB, 2);
            }
        });
    };
    CHECK(program(HostBackup{}).right_bytes);
    CHECK(!program(Rude{}).right_bytes);
}

TEST_CASE("bytes thought to survive a pause that discards them") {
    const Outcome outcome = run(Lie::none, [](Machine& machine) {
        ArenaOf<> arena{machine.lying, "discarded"};
        void* const block = arena.allocate(2_MiB);
        write_pattern(machine.honest, block, 2_MiB, 1);
        test::pause_and_resume(arena);
        CHECK(all_are(machine.honest, block, 2_MiB, host_poison));
        machine.expect_pattern(block, 2_MiB, 1);
    });
    CHECK(!outcome.right_bytes);
}
} // namespace planted_planted_bugs_test
