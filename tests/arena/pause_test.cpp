// Pausing an arena: what is released, what stays, and what the pause waits for.
#include "support/bytes.hpp"
#include "support/held_stream.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>

namespace arena_pause_test {

using namespace test;

namespace {

template <class Policy = Discard>
using ArenaOf = TaggedArena<MachineDriver, Policy>;

} // namespace

TEST_CASE_FIXTURE(OnMachine, "pages go and come back; the table of an extent's states" * on_machines) {
    const std::size_t before = machine.free_bytes();
    ArenaOf<Zero> arena{machine.driver, "table"};
    CHECK(arena.usage().state == "empty");

    // Active: allocates, deallocates, has nothing to resume.
    void* const first = arena.allocate(8_MiB);
    void* const second = arena.allocate(8_MiB);
    write_pattern(machine.driver, first, 8_MiB, 1);
    const std::size_t mapped = arena.usage().mapped_bytes;
    CHECK(arena.usage().state == "active");
    Report report = arena.resume();
    CHECK(report.mapped_bytes == 0);
    CHECK(report.tags.empty());

    // A pause releases.
    report = arena.pause();
    CHECK(report.released_bytes == mapped);
    CHECK(report.held_bytes == 0);
    REQUIRE(report.tags.size() == 1);
    CHECK(report.tags[0].tag == "table");
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(about(machine.free_bytes(), before));
    CHECK(arena.usage().state == "paused");
    CHECK(arena.usage().mapped_bytes == 0);
    CHECK(arena.usage().paused_bytes == mapped);
    CHECK(arena.usage().used_bytes == 16_MiB);

    // Paused: nothing to pause; deallocate takes effect; allocate uses a new extent.
    CHECK(arena.pause().released_bytes == 0);
    arena.deallocate(second);
    CHECK(arena.usage().blocks == 1);
    void* const third = arena.allocate(4_MiB);
    CHECK(arena.usage().state == "partly paused");
    CHECK((third < first || third >= static_cast<unsigned char*>(first) + 8_MiB));
    write_pattern(machine.driver, third, 4_MiB, 3);

    // Partly paused: allocate, deallocate, pause the rest.
    void* const fourth = arena.allocate(1_MiB);
    arena.deallocate(fourth, already_idle);
    CHECK(has_pattern(machine.driver, third, 4_MiB, 3));
    CHECK(arena.pause().released_bytes > 0);
    CHECK(arena.usage().state == "paused");
    CHECK(machine.driver.handle_bytes() == 0);

    // Partly paused: resume the rest.
    void* const fifth = arena.allocate(4_MiB);
    write_pattern(machine.driver, fifth, 4_MiB, 5);
    const std::size_t need = arena.bytes_to_resume();
    report = arena.resume();
    CHECK(report.mapped_bytes == need);
    CHECK(arena.usage().state == "active");
    CHECK(has_pattern(machine.driver, fifth, 4_MiB, 5));
    CHECK(all_are(machine.driver, first, 8_MiB, 0));
    CHECK(all_are(machine.driver, third, 4_MiB, 0));
    CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
}

TEST_CASE_FIXTURE(OnMachine, "an arena without memory pauses and resumes" * on_machines) {
    ArenaOf<> arena{machine.driver, "nothing"};
    CHECK(arena.pause().released_bytes == 0);
    CHECK(arena.resume().mapped_bytes == 0);
    CHECK(arena.trim().released_bytes == 0);
    CHECK(arena.bytes_to_resume() == 0);
}

TEST_CASE_FIXTURE(OnMachine, "the bytes of paused memory cannot be accessed" * on_machines) {
    ArenaOf<> arena{machine.driver, "gone"};
    void* const block = arena.allocate(2_MiB);
    (void)arena.pause();
    StreamRef stream;
    REQUIRE(machine.driver.inner().open_stream(stream).ok());
    unsigned char byte = 0;
    CHECK(!machine.driver.inner().copy_to_host(&byte, address_of(block), 1, stream).ok());
    CHECK(machine.driver.inner().close_stream(stream).ok());
    (void)arena.resume();
    write_pattern(machine.driver, block, 2_MiB, 1);
    CHECK(has_pattern(machine.driver, block, 2_MiB, 1));
}

TEST_CASE_FIXTURE(OnMachine, "a policy for a single pause" * on_machines) {
    ArenaOf<Zero> arena{machine.driver, "once"};
    void* const block = arena.allocate(2_MiB);
    (void)arena.pause({.bytes = Discard{.poison = static_cast<unsigned char>(0xEE)}});
    CHECK(arena.resume().restored_bytes != 0);
    CHECK(all_are(machine.driver, block, 2_MiB, 0xEE));
    (void)arena.pause();
    (void)arena.resume();
    CHECK(all_are(machine.driver, block, 2_MiB, 0));
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

TEST_CASE_FIXTURE(OnMachine, "poison shows that bytes were discarded" * on_machines) {
    ArenaOf<> arena{machine.driver, "poisoned", Discard{.poison = static_cast<unsigned char>(0xA5)}};
    void* const block = arena.allocate(3_MiB);
    write_pattern(machine.driver, block, 3_MiB, 9);
    CHECK(arena.pause().saved_bytes == 0);
    (void)arena.resume();
    CHECK(all_are(machine.driver, block, 3_MiB, 0xA5));
}

// --- What a pause waits for: on host memory, where a stream can be held ---

TEST_CASE_FIXTURE(OnMachine, "a pause that times out changes nothing") {
    const HostDriver host = host_of(machine.driver);
    ArenaOf<> arena{machine.driver, "patient"};
    void* const block = arena.allocate(2_MiB);
    write_pattern(machine.driver, block, 2_MiB, 1);
    const OwnStream stream{host};
    REQUIRE(host.hold(stream).ok());
    REQUIRE(host.enqueue(stream, address_of(block), 2_MiB, [] {}).ok());

    const std::size_t handles = machine.driver.handle_bytes();
    CHECK_THROWS_AS((void)arena.pause({.timeout = std::chrono::milliseconds{5}}), NotIdle);
    CHECK_THROWS_AS((void)arena.pause({.order = after(stream), .timeout = std::chrono::milliseconds{5}}), NotIdle);
    CHECK_THROWS_AS((void)arena.pause({.timeout = std::chrono::nanoseconds{0}}), NotIdle);
    CHECK_THROWS_AS((void)arena.trim({.timeout = std::chrono::milliseconds{1}}), NotIdle);
    CHECK(machine.driver.handle_bytes() == handles);
    CHECK(arena.usage().state == "active");
    CHECK(has_pattern(machine.driver, block, 2_MiB, 1));
    void* const more = arena.allocate(2_MiB); // still works, from the same memory
    CHECK(machine.driver.handle_bytes() <= 2 * handles);
    arena.deallocate(more, already_idle);

    REQUIRE(host.let_go(stream).ok());
    CHECK(arena.pause({.order = after(stream), .timeout = std::chrono::minutes{1}}).released_bytes >= handles);
}

TEST_CASE_FIXTURE(OnMachine, "after(stream) waits for that stream only") {
    const HostDriver host = host_of(machine.driver);
    ArenaOf<> arena{machine.driver, "ordered"};
    void* const block = arena.allocate(2_MiB);
    StreamRef mine;
    StreamRef other;
    REQUIRE(host.open_stream(mine).ok());
    REQUIRE(host.open_stream(other).ok());
    REQUIRE(host.hold(other).ok());
    REQUIRE(host.enqueue(other, [] {}).ok());
    bool ran = false;
    REQUIRE(host.enqueue(mine, address_of(block), 2_MiB, [&] { ran = true; }).ok());

    CHECK(arena.pause({.order = after(mine)}).released_bytes > 0);
    CHECK(ran);
    (void)arena.resume();

    EventRef event;
    REQUIRE(host.open_event(mine, event).ok());
    REQUIRE(host.enqueue(mine, address_of(block), 2_MiB, [&] { ran = false; }).ok());
    REQUIRE(host.record(event, mine).ok());
    CHECK(arena.pause({.order = after(event, mine)}).released_bytes > 0);
    CHECK_FALSE(ran);
    (void)arena.resume();
    CHECK(arena.pause({.order = already_idle}).released_bytes > 0); // the other stream is still held

    REQUIRE(host.let_go(other).ok());
    REQUIRE(host.close_event(event).ok());
    REQUIRE(host.close_stream(mine).ok());
    REQUIRE(host.close_stream(other).ok());
}

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

TEST_CASE("by default a pause waits for the whole device") {
    const Checked machine{nasty_machine}; // where work runs only when waited for
    const HostDriver host = host_of(machine.driver);
    ArenaOf<> arena{machine.driver, "default"};
    void* const block = arena.allocate(2_MiB);
    const OwnStream stream{host};
    bool ran = false;
    REQUIRE(host.enqueue(stream, address_of(block), 2_MiB, [&] { ran = true; }).ok());
    (void)arena.pause();
    CHECK(ran);
}

TEST_CASE("a pause does not hold up allocations, which come from fresh memory") {
    const Checked machine{host_machine};
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

TEST_CASE_FIXTURE(OnMachine, "one operation at a time: another one can time out") {
    const HostDriver host = host_of(machine.driver);
    ArenaOf<> arena{machine.driver, "turns"};
    (void)arena.allocate(2_MiB);
    const OwnStream stream{host};
    REQUIRE(host.hold(stream).ok());
    REQUIRE(host.enqueue(stream, [] {}).ok());
    const auto records = machine.driver.calls(Call::record_device);
    std::thread pausing{[&] { (void)arena.pause(); }};
    while (machine.driver.calls(Call::record_device) == records) std::this_thread::yield();
    CHECK_THROWS_AS((void)arena.pause({.order = already_idle, .timeout = std::chrono::milliseconds{2}}), NotIdle);
    REQUIRE(host.let_go(stream).ok());
    pausing.join();
    CHECK(arena.usage().state == "paused");
}

TEST_CASE_FIXTURE(OnMachine, "a stream that is being captured cannot be waited for") {
    const HostDriver host = host_of(machine.driver);
    ArenaOf<> arena{machine.driver, "captured"};
    (void)arena.allocate(2_MiB);
    const OwnStream stream{host};
    REQUIRE(host.begin_capture(stream, CaptureMode::global).ok());
    CHECK_THROWS_AS((void)arena.pause({.order = after(stream)}), Misuse);
    CHECK(arena.usage().state == "active");
    CHECK(arena.pause({.order = already_idle}).released_bytes > 0); // keeps the capture valid
    GraphRef graph;
    CHECK(host.end_capture(stream, graph).ok());
    REQUIRE(host.close_graph(graph).ok());
}

TEST_CASE("addresses and bytes of blocks that were freed while paused are free at the next pause" * on_machines) {
    const Checked machine;
    ArenaOf<HostBackup> arena{machine.driver, "rounds", HostBackup{.threads = 1}, {.capacity = 64_MiB}};
    void* const kept = arena.allocate(8_MiB);
    write_pattern(machine.driver, kept, 8_MiB, 1);
    (void)arena.pause();
    for (int round = 0; round < 20; ++round) {
        void* const block = arena.allocate(8_MiB);
        (void)arena.pause();
        CHECK(arena.usage().paused_bytes == 16_MiB);
        CHECK(machine.driver.pinned_bytes() <= 16_MiB);
        arena.deallocate(block);
    }
    (void)arena.resume();
    CHECK(has_pattern(machine.driver, kept, 8_MiB, 1));
}

} // namespace arena_pause_test
