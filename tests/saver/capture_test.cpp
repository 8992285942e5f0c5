// Open stream captures while memory is allocated, freed, prepared, paused and resumed.
#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"
#include "support/manual_backup.hpp"

namespace saver_capture_test {
using namespace test;
using D = MachineDriver;

/// A capture of fills, on a stream of its own.
struct Capturing : OwnStream<D> {
    explicit Capturing(const D& driver, CaptureMode mode = CaptureMode::relaxed)
        : OwnStream{driver}, on{driver}, graph{driver, *this, mode} {}
    void fill(const void* block, std::size_t bytes, unsigned char byte) { fill_on(on, block, bytes, byte, *this); }
    /// Returns whether it is valid.
    bool end() { return graph.end(); }
    void replay() { graph.replay(); }

    const D& on;
    OwnCapture<D> graph;
};

/// A program that captures fills of its data.
struct Program {
    explicit Program(CaptureMode how) : mode{how} { capture.fill(data.data(), data.size_bytes(), 1); }
    /// The capture is whole, and its graph works, also after its memory was paused.
    void finish() {
        capture.fill(data.data(), data.size_bytes(), 2);
        REQUIRE(capture.end());
        for (int cycle = 0; cycle < 2; ++cycle) {
            capture.replay();
            CHECK(all_are(machine.driver, data.data(), data.size_bytes(), 2));
            pause_and_resume(saver, "data");
            CHECK(all_are(machine.driver, data.data(), data.size_bytes(), 0));
        }
    }

    const CaptureMode mode;
    const Checked machine{};
    MemorySaver<D> saver{machine.driver};
    const Buffer<char> data{saver.arena("data", Zero{}), 1_MiB};
    const OwnStream<D> other{machine.driver};
    Capturing capture{machine.driver, mode};
};

/// Runs `act` while a capture is open, for every mode, on the capturing thread and on another one, which has not used
/// the device before.
void around_captures(const std::function<void(Program&)>& act) {
    for (const CaptureMode mode : capture_modes) {
        for (const bool other_thread : {false, true}) {
            CAPTURE(static_cast<int>(mode));
            CAPTURE(other_thread);
            Program program{mode};
            other_thread ? std::thread{[&] { act(program); }}.join() : act(program);
            program.finish();
        }
    }
}

TEST_CASE("allocating, growing, freeing, waiting and another saver inside a capture leave it whole" * on_machines) {
    around_captures([](Program& program) {
        const auto before = program.machine.driver.calls(Call::create);
        const Arena fresh = program.saver.arena("fresh"); // reserves addresses
        for (const std::size_t bytes : {256_KiB, 3_MiB, 40_MiB}) (void)fresh.allocate(bytes);
        for (int i = 0; i < 100; ++i) (void)fresh.allocate(4_KiB);
        CHECK(program.machine.driver.calls(Call::create) > before);

        const Arena arena = program.saver.arena("freed");
        for (const std::size_t bytes : {std::size_t{300}, std::size_t{40'000}, std::size_t{5_MiB}}) {
            for (int i = 0; i < 8; ++i) {
                arena.deallocate(arena.allocate(bytes));
                arena.deallocate(arena.allocate(bytes), program.other);
                arena.deallocate(arena.allocate(bytes), program.capture);
                arena.deallocate(arena.allocate(bytes), already_idle);
            }
        }
        CHECK(program.saver.bytes_to_resume() == 0);
        CHECK(arena.usage().blocks == 0);

        const Arena full = program.saver.arena("full", Discard{}, {.capacity = 4_MiB});
        void* const old = full.allocate(2_MiB);
        (void)full.allocate(2_MiB);
        full.deallocate(old); // reusable once the device has completed its work
        const auto drains = program.machine.driver.calls(Call::drain);
        CHECK(full.allocate(2_MiB) == old);
        CHECK(program.machine.driver.calls(Call::drain) == drains + 1);

        MemorySaver second{program.machine.driver};
        { const Buffer<int> buffer{second.arena("tag"), 1 << 20}; }
        std::ignore = second.usage();
        second.close();
    });
}

TEST_CASE("preparing, saving and restoring leave a capture whole, whatever keeps the bytes" * on_machines) {
    constexpr std::size_t bytes = 3_MiB + 6912;
    const auto all = keepers();
    around_captures([&](Program& program) {
        const D& driver = program.machine.driver;
        for (const auto& keeper : all) {
            // What a global capture forbids includes what the others do: one policy suffices for them.
            if (program.mode != CaptureMode::global && &keeper != all.data()) continue;
            CAPTURE(keeper.name);
            const Arena kept = program.saver.arena(keeper.name, keeper.policy);
            const Filled small{driver, kept, 6912, 1};
            const Filled large{driver, kept, 3_MiB, 2};
            program.saver.prepare(keeper.name);
            const std::uint64_t pages = driver.calls(Call::map_host);
            CHECK(program.saver.pause(keeper.name, {.order = after(program.other)}).saved_bytes == bytes);
            // Allocated before; a codec of the GPU also takes host memory for itself.
            if (!contains(keeper.name, "compressed")) CHECK(driver.calls(Call::map_host) == pages);
            CHECK(program.saver.resume(keeper.name).restored_bytes == bytes);
            CHECK((small.whole() && large.whole()));
        }
    });
}

TEST_CASE_FIXTURE(OnSaver, "with the default order, a pause refuses while a capture is open, and says what to write" *
                               on_hosts) {
    const CaptureMode mode = each_of(std::vector(std::begin(capture_modes), std::end(capture_modes)));
    const Arena arena = saver.arena("kept", Zero{});
    void* const block = arena.allocate(1_MiB);
    write_pattern(machine.driver, block, 1_MiB, 1);
    Capturing capture{machine.driver, mode};
    const std::size_t mapped = machine.driver.handle_bytes();
    const std::string text = text_of<DriverError>([&] { (void)saver.pause(); });
    CHECK_MESSAGE(contains(text, "after("), text);
    CHECK_MESSAGE(contains(text, "capture"), text);
    CHECK(contains(text_of<DriverError>([&] { (void)saver.trim(); }), "after("));
    CHECK(machine.driver.handle_bytes() == mapped);
    CHECK(row_of(saver, "kept").state == "active");
    CHECK(has_pattern(machine.driver, block, 1_MiB, 1));
    CHECK(arena.allocate(1000) != nullptr); // works again
    CHECK(machine.driver.handle_bytes() == mapped);
    CHECK(!capture.end()); // that wait has invalidated the program's capture, as documented
    CHECK(saver.pause().released_bytes == mapped);
    (void)saver.resume();
}

TEST_CASE("a pause after the streams concerned, a resume and a trim leave a capture whole" * on_machines) {
    around_captures([](Program& program) {
        MemorySaver<D>& saver = program.saver;
        const D& driver = program.machine.driver;
        const Arena paused = saver.arena("paused", Zero{});
        void* const away = paused.allocate(2_MiB);
        CHECK(driver.fill(address_of(away), 9, 2_MiB, program.other).ok());
        CHECK(saver.pause("paused", {.order = after(program.other)}).released_bytes != 0);
        paused.deallocate(paused.allocate(1_MiB));
        CHECK(saver.trim({.order = already_idle}).held_bytes == 0);
        CHECK(saver.resume("paused").restored_bytes != 0);
        CHECK(all_are(driver, away, 2_MiB, 0));
        CHECK(saver.pause("paused", {.order = already_idle}).released_bytes != 0);
        paused.deallocate(away);
        (void)saver.resume("paused");
        // A stream being captured has no work to wait for.
        check_says<Misuse>("captured", [&] { (void)saver.pause("data", {.order = after(program.capture)}); });
        CHECK(row_of(saver, "data").state == "active");
    });
}

TEST_CASE("a pause that does not get idle in time leaves a capture whole" * on_hosts) {
    around_captures([](Program& program) {
        const HeldStream work{program.machine.driver};
        const auto patience = PauseOptions{.order = after(work.get()), .timeout = std::chrono::milliseconds{1}};
        CHECK_THROWS_AS((void)program.saver.pause("data", patience), NotIdle);
        CHECK(row_of(program.saver, "data").state == "active");
        work.finish();
    });
}

TEST_CASE_FIXTURE(OnSaver, "a timeout after a failed operation leaves captures whole if the call does" * on_hosts) {
    const ManualBackup policy;
    policy.copies->held = false;
    const Buffer<char> block{saver.arena("fails", policy), 1_MiB};
    saver.pause();
    policy.copies->fails = true;
    CHECK_THROWS_AS(saver.resume_async("fails").wait(), DriverError);
    policy.copies->fails = false;
    const OwnStream other{machine.driver};
    Capturing capture{machine.driver};
    constexpr auto limit = 1min;
    SUBCASE("a use") { (void)saver.use("fails", {.timeout = limit}); }
    SUBCASE("a pause after a stream") { saver.pause("fails", {.order = after(other), .timeout = limit}); }
    SUBCASE("an exchange after a stream") {
        saver.exchange("fails", Tags{}, {.order = after(other), .timeout = limit});
    }
    SUBCASE("a trim after a stream") { saver.trim("fails", {.order = after(other), .timeout = limit}); }
    SUBCASE("a trim of idle memory") { saver.trim("fails", {.order = already_idle, .timeout = limit}); }
    SUBCASE("saving ahead") { saver.save(Tags::all(), {.order = already_idle, .timeout = limit}).wait(); }
    CHECK(capture.end());
}

TEST_CASE("a block freed with a capturing stream is not reused: replays write there" * on_machines) {
    enum class Freed { active, paused, in_a_pause_that_fails };
    for (const Freed when : {Freed::active, Freed::paused, Freed::in_a_pause_that_fails}) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("graph", Zero{}, {.capacity = 256_MiB});
        void* const large = arena.allocate(2_MiB);
        void* const small = arena.allocate(1000);
        Capturing capture{machine.driver};
        capture.fill(large, 2_MiB, 1);
        capture.fill(small, 1000, 2);
        const auto free_both = [&] {
            arena.deallocate(large, capture);
            arena.deallocate(small, capture);
        };
        if (when == Freed::active) free_both();
        if (when == Freed::paused) {
            (void)saver.pause({.order = already_idle});
            free_both();
            (void)saver.resume();
        }
        if (when == Freed::in_a_pause_that_fails) {
            bool asked = false;
            machine.driver.on_call([&](const CallRecord& made) {
                if (made.call != Call::unmap || std::exchange(asked, true)) return;
                machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
                free_both(); // during the operation
            });
            CHECK_THROWS_AS((void)saver.pause({.order = already_idle}), DriverError);
            machine.driver.on_call({});
            machine.driver.heal();
            CHECK(asked);
            (void)saver.resume();
        }
        CHECK(arena.usage().blocks == 0);
        REQUIRE(capture.end());
        CHECK(machine.driver.drain().ok());
        (void)saver.trim();

        std::vector<std::pair<void*, std::size_t>> others;
        for (const std::size_t bytes : {std::size_t{1000}, std::size_t{2_MiB}}) {
            for (int i = 0; i < 6; ++i) others.emplace_back(arena.allocate(bytes), bytes);
        }
        for (const auto& [block, bytes] : others) {
            CHECK(block != large);
            CHECK(block != small);
            write_pattern(machine.driver, block, bytes, 3);
        }
        capture.replay(); // its memory is still its own
        for (const auto& [block, bytes] : others) CHECK(has_pattern(machine.driver, block, bytes, 3));
        pause_and_resume(saver);
        capture.replay();
    }
}
} // namespace saver_capture_test
