// Pausing an arena: what is released, what stays, and what the pause waits for.
#include "support/machines.hpp"

namespace arena_pause_test {
using namespace test;

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

TEST_CASE_FIXTURE(OnMachine, "pages go and come back; the table of an extent's states" * on_machines) {
    const std::size_t before = machine.free_bytes();
    ArenaOf<Zero> arena{machine.driver, "table"};
    const auto is = [&](const char* state) { CHECK(arena.usage().state == state); };
    is("empty");
    // Active: allocates, deallocates, has nothing to resume.
    void* const first = arena.allocate(8_MiB);
    void* const second = arena.allocate(8_MiB);
    write_pattern(machine.driver, first, 8_MiB, 1);
    const std::size_t mapped = arena.usage().mapped_bytes;
    is("active");
    CHECK(arena.resume().tags.empty());
    // A pause releases.
    CHECK(arena.pause().released_bytes == mapped);
    CHECK(about(machine.free_bytes(), before));
    is("paused");
    CHECK(arena.usage().paused_bytes == mapped);
    CHECK(arena.usage().used_bytes == 16_MiB);
    // Paused: nothing to pause; deallocate takes effect; allocate uses a new extent.
    CHECK(arena.pause().released_bytes == 0);
    arena.deallocate(second);
    CHECK(arena.usage().blocks == 1);
    void* const third = arena.allocate(4_MiB);
    is("partly paused");
    CHECK((third < first || third >= static_cast<unsigned char*>(first) + 8_MiB));
    write_pattern(machine.driver, third, 4_MiB, 3);
    // Partly paused: allocate, deallocate, pause the rest.
    arena.deallocate(arena.allocate(1_MiB), already_idle);
    CHECK(has_pattern(machine.driver, third, 4_MiB, 3));
    CHECK(arena.pause().released_bytes > 0);
    is("paused");
    CHECK(machine.driver.handle_bytes() == 0);
    // Partly paused: resume the rest.
    void* const fourth = arena.allocate(4_MiB);
    write_pattern(machine.driver, fourth, 4_MiB, 5);
    const std::size_t need = arena.bytes_to_resume();
    CHECK(arena.resume().mapped_bytes == need);
    is("active");
    CHECK(has_pattern(machine.driver, fourth, 4_MiB, 5));
    CHECK(all_are(machine.driver, first, 8_MiB, 0));
    CHECK(all_are(machine.driver, third, 4_MiB, 0));
    CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
}

TEST_CASE_FIXTURE(OnMachine, "batches that were paused under different policies are restored by each" * on_machines) {
    ArenaOf<Zero> arena{machine.driver, "mixed"};
    void* const first = arena.allocate(2_MiB);
    (void)arena.pause();
    void* const second = arena.allocate(2_MiB);
    (void)arena.pause({.bytes = Discard{.poison = static_cast<unsigned char>(0x11)}});
    void* const third = arena.allocate(2_MiB);
    (void)arena.pause({.bytes = Discard{.poison = static_cast<unsigned char>(0x22)}});
    (void)arena.resume();
    CHECK(all_are(machine.driver, first, 2_MiB, 0));
    CHECK(all_are(machine.driver, second, 2_MiB, 0x11));
    CHECK(all_are(machine.driver, third, 2_MiB, 0x22));
}

// --- What a pause waits for: on host memory, where a stream can be held ---

TEST_CASE_FIXTURE(OnMachine, "a pause after one that failed keeps its timeout") {
    ArenaOf<HostBackup> arena{machine.driver, "again", HostBackup{.threads = 1}};
    (void)arena.allocate(2_MiB);
    machine.driver.fail({.call = Call::copy_to_host});
    CHECK_THROWS_AS((void)arena.pause({.order = already_idle}), DriverError);
    {
        const HeldStream busy{host_of(machine.driver)};
        CHECK_THROWS_AS((void)arena.pause({.order = already_idle, .timeout = std::chrono::milliseconds{1}}), NotIdle);
    }
    CHECK(arena.pause({.timeout = std::chrono::hours{1}}).released_bytes > 0);
}

TEST_CASE_FIXTURE(OnHost, "a pause does not hold up allocations, which come from fresh memory") {
    const HostDriver host = host_of(machine.driver);
    ArenaOf<> arena{machine.driver, "meanwhile"};
    void* const block = arena.allocate(2_MiB);
    void* const freed = arena.allocate(2_MiB);
    const OwnStream stream{host};
    REQUIRE(host.hold(stream).ok());
    REQUIRE(host.enqueue(stream, address_of(block), 2_MiB, [] {}).ok());
    const auto records = machine.driver.calls(Call::record_device);
    std::thread pausing{[&] { (void)arena.pause(); }};
    while (machine.driver.calls(Call::record_device) == records) std::this_thread::yield();

    arena.deallocate(freed);
    void* const during = arena.allocate(2_MiB);
    CHECK(during != block);
    CHECK(during != freed);
    write_pattern(machine.driver, during, 2_MiB, 7);
    REQUIRE(host.let_go(stream).ok());
    pausing.join();
    CHECK(arena.usage().state == "partly paused");
    CHECK(has_pattern(machine.driver, during, 2_MiB, 7));
    CHECK_THROWS_AS(arena.deallocate(freed), Misuse);
    (void)arena.resume();
    CHECK(has_pattern(machine.driver, during, 2_MiB, 7));
    CHECK(arena.usage().blocks == 2);
}
TEST_CASE("addresses and bytes of blocks that were freed while paused are free at the next pause, or trim" *
          on_machines) {
    for (const bool trims : {false, true}) {
        CAPTURE(trims);
        const Checked machine;
        ArenaOf<HostBackup> arena{machine.driver, "rounds", HostBackup{.threads = 1}, {.capacity = 64_MiB}};
        void* const kept = arena.allocate(8_MiB);
        write_pattern(machine.driver, kept, 8_MiB, 1);
        (void)arena.pause();
        if (trims) arena.deallocate(kept);
        for (int round = 0; round < 20; ++round) {
            if (trims) {
                (void)arena.trim();
                CHECK(arena.usage().state == "empty");
                CHECK(machine.driver.pinned_bytes() == 0);
            }
            void* const block = arena.allocate(8_MiB);
            (void)arena.pause();
            CHECK(arena.usage().paused_bytes == (trims ? 8_MiB : 16_MiB));
            CHECK(machine.driver.pinned_bytes() <= 16_MiB);
            arena.deallocate(block);
        }
        (void)arena.resume();
        if (!trims) CHECK(has_pattern(machine.driver, kept, 8_MiB, 1));
    }
}
} // namespace arena_pause_test
