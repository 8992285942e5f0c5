// Open stream captures while memory is allocated, freed, prepared, paused and resumed.
#include "backup/backup_support.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

namespace saver_capture_test {
using namespace test;
using D = MachineDriver;

constexpr CaptureMode modes[] = {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed};

/// A stream on which a program captures fills.
struct Capturing {
    explicit Capturing(const D& driver) : driver_{driver} { REQUIRE(driver_.open_stream(stream_).ok()); }
    ~Capturing() {
        if (graph_ != GraphRef{}) CHECK(driver_.close_graph(graph_).ok());
        CHECK(driver_.close_stream(stream_).ok());
    }

    void begin(CaptureMode mode) { REQUIRE(driver_.begin_capture(stream_, mode).ok()); }
    void fill(const void* block, std::size_t bytes, unsigned char byte) {
        CHECK(driver_.fill(address_of(block), byte, bytes, stream_).ok());
    }
    /// Ends the capture; returns whether it is valid.
    bool end() { return driver_.end_capture(stream_, graph_).ok(); }
    void replay() {
        REQUIRE(driver_.launch(graph_, stream_).ok());
        CHECK(driver_.drain().ok());
    }
    [[nodiscard]] StreamRef stream() const { return stream_; }

private:
    D driver_;
    StreamRef stream_;
    GraphRef graph_{};
};

TEST_CASE("freeing and reusing inside a capture leaves it whole" * on_hosts) {
    for (const CaptureMode mode : modes) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("freed");
        Capturing other{machine.driver};
        Capturing capture{machine.driver};
        capture.begin(mode);
        for (const std::size_t bytes : {std::size_t{300}, std::size_t{40'000}, std::size_t{5_MiB}}) {
            for (int i = 0; i < 8; ++i) {
                arena.deallocate(arena.allocate(bytes));
                arena.deallocate(arena.allocate(bytes), other.stream());
                arena.deallocate(arena.allocate(bytes), capture.stream());
                arena.deallocate(arena.allocate(bytes), already_idle);
            }
        }
        (void)saver.usage();
        CHECK(saver.bytes_to_resume() == 0);
        CHECK(capture.end());
        CHECK(arena.usage().blocks == 0);
    }
}

TEST_CASE("an allocation that waits for the device leaves a capture whole" * on_hosts) {
    for (const CaptureMode mode : modes) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("fence");
        void* const old = arena.allocate(32_MiB);
        arena.deallocate(old); // reusable once the device has completed its work
        Capturing capture{machine.driver};
        capture.begin(mode);
        const auto drains = machine.driver.calls(Call::drain);
        CHECK(arena.allocate(32_MiB) == old);
        CHECK(machine.driver.calls(Call::drain) > drains);
        capture.fill(old, 1_MiB, 7);
        REQUIRE(capture.end());
        capture.replay();
        CHECK(all_are(machine.driver, old, 1_MiB, 7));
    }
}

TEST_CASE("preparing, saving and restoring leave a capture whole, whatever keeps the bytes" * on_hosts) {
    const auto all = keepers();
    for (const CaptureMode mode : modes) {
        for (const auto& keeper : all) {
            // What a global capture forbids includes what the others do: one policy suffices for them.
            if (mode != CaptureMode::global && &keeper != all.data()) continue;
            for (const bool same_thread : {true, false}) {
                CAPTURE(keeper.name);
                const Checked machine;
                MemorySaver saver{machine.driver};
                const Arena kept = saver.arena("kept", keeper.policy);
                void* const small = kept.allocate(6912);
                void* const large = kept.allocate(3_MiB);
                void* const block = saver.arena("used").allocate(1_MiB);
                write_pattern(machine.driver, small, 6912, 1);
                write_pattern(machine.driver, large, 3_MiB, 2);
                Capturing capture{machine.driver};
                capture.begin(mode);
                capture.fill(block, 1_MiB, 1);
                const auto cycle = [&] {
                    saver.prepare("kept");
                    const std::uint64_t pages = machine.driver.calls(Call::map_host);
                    CHECK(saver.pause("kept", {.order = already_idle}).saved_bytes == 3_MiB + 6912);
                    CHECK(machine.driver.calls(Call::map_host) == pages); // allocated before
                    CHECK(saver.resume("kept").restored_bytes == 3_MiB + 6912);
                };
                if (same_thread) {
                    cycle();
                } else {
                    std::thread{cycle}.join();
                }
                capture.fill(block, 1_MiB, 2);
                REQUIRE(capture.end());
                CHECK(has_pattern(machine.driver, small, 6912, 1));
                CHECK(has_pattern(machine.driver, large, 3_MiB, 2));
                capture.replay();
                CHECK(all_are(machine.driver, block, 1_MiB, 2));
            }
        }
    }
}

TEST_CASE("with the default order, a pause refuses while a capture is open, and says what to write" * on_hosts) {
    for (const CaptureMode mode : modes) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("kept", Zero{});
        void* const block = arena.allocate(1_MiB);
        write_pattern(machine.driver, block, 1_MiB, 1);
        Capturing capture{machine.driver};
        capture.begin(mode);
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
}

TEST_CASE("a pause after the streams concerned, and a resume, leave a capture whole" * on_hosts) {
    for (const CaptureMode mode : modes) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena paused = saver.arena("paused", Zero{});
        const Arena used = saver.arena("used");
        void* const away = paused.allocate(2_MiB);
        void* const block = used.allocate(2_MiB);
        HeldStream work{host_of(machine.driver)};
        CHECK(machine.driver.fill(address_of(away), 9, 2_MiB, work.get()).ok());
        Capturing capture{machine.driver};
        capture.begin(mode);
        capture.fill(block, 2_MiB, 6);

        const auto patience = PauseOptions{.order = after(work.get()), .timeout = std::chrono::milliseconds{1}};
        CHECK_THROWS_AS((void)saver.pause("paused", patience), NotIdle);
        CHECK(row_of(saver, "paused").state == "active");
        work.let_go();
        CHECK(saver.pause("paused", {.order = after(work.get())}).released_bytes != 0);
        paused.deallocate(paused.allocate(1_MiB));
        CHECK(saver.trim({.order = already_idle}).held_bytes == 0);
        CHECK(saver.resume("paused").restored_bytes != 0);
        CHECK(all_are(machine.driver, away, 2_MiB, 0));
        CHECK(saver.pause("paused", {.order = already_idle}).released_bytes != 0);

        // A stream being captured has no work to wait for.
        const std::string text =
            text_of<Misuse>([&] { (void)saver.pause("used", {.order = after(capture.stream())}); });
        CHECK_MESSAGE(contains(text, "captured"), text);
        CHECK(row_of(saver, "used").state == "active");

        REQUIRE(capture.end());
        (void)saver.resume();
        capture.replay();
        CHECK(all_are(machine.driver, block, 2_MiB, 6));
    }
}

TEST_CASE_FIXTURE(OnSaver,
                  "a timeout, after an operation that failed, does not break captures that the call leaves whole" *
                      on_hosts) {
    const ManualBackup policy;
    policy.copies->held = false;
    const Buffer<char> block{saver.arena("fails", policy), 1_MiB};
    saver.pause();
    policy.copies->fails = true;
    CHECK_THROWS_AS(saver.resume_async("fails").wait(), DriverError);
    policy.copies->fails = false;
    const OwnStream other{machine.driver};
    Capturing capture{machine.driver};
    capture.begin(CaptureMode::relaxed);
    constexpr std::chrono::minutes limit{1};
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

TEST_CASE("a block freed with a capturing stream is not reused: replays write there" * on_hosts) {
    enum class Freed { active, paused, in_a_pause_that_fails };
    for (const Freed when : {Freed::active, Freed::paused, Freed::in_a_pause_that_fails}) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("graph", Zero{}, {.capacity = 256_MiB});
        void* const large = arena.allocate(2_MiB);
        void* const small = arena.allocate(1000);
        Capturing capture{machine.driver};
        capture.begin(CaptureMode::relaxed);
        capture.fill(large, 2_MiB, 1);
        capture.fill(small, 1000, 2);
        const auto free_both = [&] {
            arena.deallocate(large, capture.stream());
            arena.deallocate(small, capture.stream());
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
