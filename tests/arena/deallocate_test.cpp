// Freeing blocks: when they can be reused, and refused requests.
#include "support/bytes.hpp"
#include "support/held_stream.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace arena_deallocate_test {

using namespace test;

namespace {

using ArenaOf = TaggedArena<MachineDriver>;

} // namespace

TEST_CASE_FIXTURE(OnMachine, "a block freed as idle is reused at once" * on_machines) {
    ArenaOf arena{machine.driver, "idle"};
    for (const std::size_t bytes : {std::size_t{256}, std::size_t{70'000}, std::size_t{2_MiB}, std::size_t{40_MiB}}) {
        void* const first = arena.allocate(bytes);
        arena.deallocate(first, already_idle);
        void* const second = arena.allocate(bytes);
        CHECK(second == first);
        arena.deallocate(second, already_idle);
    }
    CHECK(arena.usage().blocks == 0);
    CHECK(arena.usage().used_bytes == 0);
}

TEST_CASE_FIXTURE(OnMachine, "neighbours grow together, in whatever order they are freed" * on_machines) {
    for (const std::vector<std::size_t>& order :
         std::vector<std::vector<std::size_t>>{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}}) {
        ArenaOf arena{machine.driver, "merge", {}, {.capacity = 32_MiB, .reserve = 32_MiB}};
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i) blocks.push_back(arena.allocate(8_MiB));
        for (const std::size_t i : order) arena.deallocate(blocks[i], already_idle);
        CHECK(arena.allocate(32_MiB) != nullptr);
    }
}

TEST_CASE_FIXTURE(OnMachine, "a block freed without a stream waits for the whole device") {
    HeldStream busy{host_of(machine.driver)};
    {
        // Enough free memory, so that waiting is not worthwhile.
        ArenaOf arena{machine.driver, "busy", {}, {.reserve = 64_MiB}};
        void* const block = arena.allocate(2_MiB);
        arena.deallocate(block); // returns although the device is busy
        CHECK(arena.usage().blocks == 0);
        for (int i = 0; i < 8; ++i) CHECK(arena.allocate(2_MiB) != block);
        busy.finish();
    }
}

TEST_CASE_FIXTURE(OnMachine, "a block freed with a stream waits for that stream alone") {
    HeldStream mine{host_of(machine.driver)};
    HeldStream other{host_of(machine.driver)};
    {
        ArenaOf arena{machine.driver, "stream"};
        void* const block = arena.allocate(2_MiB);
        arena.deallocate(block, mine.get());
        CHECK(arena.allocate(2_MiB) != block);
        mine.finish();
        std::set<void*> later;
        for (int i = 0; i < 64; ++i) later.insert(arena.allocate(2_MiB));
        CHECK(later.contains(block)); // while the other stream is still held
        other.finish();
    }
}

TEST_CASE_FIXTURE(OnMachine, "a stream that cannot be marked leaves the block as it is, and says why") {
    const OwnStream stream{machine.driver};
    ArenaOf arena{machine.driver, "unmarked"};
    void* const block = arena.allocate(2_MiB);
    machine.driver.fail({.call = Call::open_event, .kind = StatusKind::out_of_memory});
    CHECK_THROWS_AS(arena.deallocate(block, stream), OutOfMemory);
    machine.driver.fail({.call = Call::open_event, .kind = StatusKind::out_of_host_memory});
    CHECK_THROWS_AS(arena.deallocate(block, stream), OutOfHostMemory);
    machine.driver.fail({.call = Call::record});
    CHECK_THROWS_AS(arena.deallocate(block, stream), DriverError);
    CHECK(arena.usage().blocks == 1);
    arena.deallocate(block, stream);
    CHECK(arena.usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnMachine, "memory that waits for the device is used before the arena says that it is full") {
    ArenaOf arena{machine.driver, "fenced", {}, {.capacity = 8_MiB}};
    void* const block = arena.allocate(8_MiB);
    arena.deallocate(block);
    CHECK(arena.allocate(8_MiB) == block);
    CHECK(machine.driver.calls(Call::drain) >= 1);
}

TEST_CASE_FIXTURE(OnMachine, "freeing over and over does not grow the arena" * on_machines) {
    ArenaOf arena{machine.driver, "churn"};
    for (int i = 0; i < 2000; ++i) arena.deallocate(arena.allocate(100'000));
    for (int i = 0; i < 200; ++i) arena.deallocate(arena.allocate(3_MiB));
    CHECK(arena.usage().mapped_bytes <= 96_MiB + small_change(machine.driver));
}

TEST_CASE_FIXTURE(OnMachine, "deallocating null does nothing" * on_machines) {
    ArenaOf arena{machine.driver, "null"};
    arena.deallocate(nullptr);
    arena.deallocate(nullptr, already_idle);
    arena.deallocate(nullptr, StreamRef{});
    CHECK(machine.driver.handle_bytes() == 0);
}

TEST_CASE_FIXTURE(OnMachine, "foreign, interior and freed pointers are told apart" * on_machines) {
    ArenaOf arena{machine.driver, "mine"};
    ArenaOf other{machine.driver, "other"};
    auto* const large = static_cast<unsigned char*>(arena.allocate(3_MiB));
    auto* const small = static_cast<unsigned char*>(arena.allocate(1000));
    void* const foreign = other.allocate(1_MiB);
    int on_the_host = 0;

    for (void* const pointer : {foreign, static_cast<void*>(&on_the_host)}) {
        const std::string text = text_of<Misuse>([&] { arena.deallocate(pointer); });
        CHECK(contains(text, "not a pointer of tag \"mine\""));
        CHECK(contains(text, format_address(address_of(pointer))));
    }
    for (void* const pointer : {static_cast<void*>(large + 4096), static_cast<void*>(large + 1),
                                static_cast<void*>(small + 256), static_cast<void*>(small + 999)}) {
        const std::string text = text_of<Misuse>([&] { arena.deallocate(pointer, already_idle); });
        CHECK(contains(text, "inside a block"));
        CHECK(contains(text, "mine"));
    }
    CHECK(contains(text_of<Misuse>([&] { arena.deallocate(large + 64_MiB); }), "no block of this tag"));

    arena.deallocate(small);
    CHECK(contains(text_of<Misuse>([&] { arena.deallocate(small); }), "freed before"));
    arena.deallocate(large, already_idle);
    CHECK(contains(text_of<Misuse>([&] { arena.deallocate(large, already_idle); }), "freed before"));
    CHECK(arena.usage().blocks == 0);
    CHECK(arena.allocate(1_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "the first byte of a chunk that small blocks share is not a block" * on_machines) {
    ArenaOf arena{machine.driver, "chunk"};
    void* const first = arena.allocate(256);
    void* const second = arena.allocate(256);
    arena.deallocate(first, already_idle);
    CHECK_THROWS_AS(arena.deallocate(first, already_idle), Misuse);
    arena.deallocate(second, already_idle);
    CHECK_THROWS_AS(arena.deallocate(first, already_idle), Misuse);
}

TEST_CASE_FIXTURE(OnMachine, "blocks may be freed by another thread" * on_machines) {
    ArenaOf arena{machine.driver, "elsewhere"};
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(arena.allocate(i % 2 == 0 ? 1000 : 300'000));
    std::thread{[&] {
        for (void* const block : blocks) arena.deallocate(block);
    }}.join();
    CHECK(arena.usage().blocks == 0);
    (void)arena.trim();
    CHECK(machine.driver.handle_bytes() == 0);
}

} // namespace arena_deallocate_test
