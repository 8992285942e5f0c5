// Allocating from an arena: sizes, alignments, growth, and refused requests.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace arena_allocate_test {

using namespace test;

namespace {

using ArenaOf = TaggedArena<MachineDriver>;

} // namespace

TEST_CASE_FIXTURE(OnMachine, "blocks are aligned, disjoint and usable" * on_machines) {
    ArenaOf arena{machine.driver, "blocks"};
    std::vector<std::pair<Address, std::size_t>> blocks;
    const std::vector<std::pair<std::size_t, std::size_t>> wanted{
        {1, 256},         {255, 256},       {257, 512},     {6'912, 256},         {4_KiB, 4_KiB}, {100'000, 64_KiB},
        {1_MiB, 256},     {2_MiB, 2_MiB},   {3_MiB, 1_MiB}, {64_MiB + 1, 256},    {5, 4_MiB},     {700, 1},
        {300'000, 2_MiB}, {16_MiB, 16_MiB}, {1, 128_KiB},   {9_MiB + 77, 64_KiB}, {512, 256},     {33_MiB, 256}};
    for (const auto& [bytes, alignment] : wanted) {
        void* const pointer = arena.allocate(bytes, alignment);
        CHECK(address_of(pointer) % alignment == 0);
        CHECK(address_of(pointer) % 256 == 0);
        blocks.emplace_back(address_of(pointer), bytes);
        write_pattern(machine.driver, pointer, std::min<std::size_t>(bytes, 4_MiB), blocks.size());
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const auto& [address, bytes] = blocks[i];
        CHECK(
            has_pattern(machine.driver, reinterpret_cast<void*>(address), std::min<std::size_t>(bytes, 4_MiB), i + 1));
    }
    std::sort(blocks.begin(), blocks.end());
    for (std::size_t i = 1; i < blocks.size(); ++i) {
        CHECK(blocks[i - 1].first + blocks[i - 1].second <= blocks[i].first);
    }
    CHECK(arena.usage().blocks == blocks.size());
    CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
}

TEST_CASE_FIXTURE(OnMachine, "small blocks share pages" * on_machines) {
    ArenaOf arena{machine.driver, "small"};
    for (int i = 0; i < 4096; ++i) (void)arena.allocate(4_KiB);
    CHECK(arena.usage().used_bytes == 16_MiB);
    CHECK(arena.usage().mapped_bytes <= 32_MiB);
    CHECK(machine.driver.outstanding().handles <= 8);
}

TEST_CASE_FIXTURE(OnMachine, "a large block takes what it needs in few handles" * on_machines) {
    ArenaOf arena{machine.driver, "large"};
    (void)arena.allocate(301_MiB);
    CHECK(machine.driver.outstanding().handles == 1);
    CHECK(arena.usage().mapped_bytes == 302_MiB);
}

TEST_CASE_FIXTURE(OnMachine, "reserve takes memory at once" * on_machines) {
    ArenaOf arena{machine.driver, "reserved", {}, {.reserve = 100_MiB}};
    CHECK(arena.usage().mapped_bytes == 100_MiB);
    const auto creates = machine.driver.calls(Call::create);
    for (int i = 0; i < 10; ++i) (void)arena.allocate(10_MiB);
    CHECK(machine.driver.calls(Call::create) == creates);
}

TEST_CASE_FIXTURE(OnMachine, "misuse is refused, and the arena stays usable" * on_machines) {
    ArenaOf arena{machine.driver, "strict", {}, {.capacity = 64_MiB}};
    const auto refused = [&](std::size_t bytes, std::size_t alignment) {
        const std::string text = text_of<Misuse>([&] { (void)arena.allocate(bytes, alignment); });
        CHECK(contains(text, "strict"));
        return text;
    };
    CHECK(contains(refused(0, 256), "size is 0"));
    CHECK(contains(refused(std::numeric_limits<std::size_t>::max(), 256), "capacity"));
    CHECK(contains(refused(static_cast<std::size_t>(-4096), 256), "capacity"));
    CHECK(contains(refused(64_MiB + 1, 256), "capacity"));
    CHECK(contains(refused(1_MiB, 0), "alignment is 0"));
    CHECK(contains(refused(1_MiB, 768), "power of two"));
    CHECK(contains(refused(1_MiB, std::size_t{1} << 63U), "more than 1 GiB"));

    void* const most = arena.allocate(60_MiB);
    CHECK(refused(8_MiB, 256) == "tag \"strict\": 8.00 MiB more would exceed its capacity of 64.00 MiB");
    CHECK(arena.usage().blocks == 1);
    arena.deallocate(most, already_idle);
    CHECK(arena.allocate(8_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "freed addresses count as capacity again" * on_machines) {
    ArenaOf arena{machine.driver, "cycle", {}, {.capacity = 64_MiB}};
    for (int i = 0; i < 8; ++i) {
        void* const block = arena.allocate(48_MiB + static_cast<std::size_t>(i) * 2_MiB);
        arena.deallocate(block, already_idle);
        (void)arena.trim();
        CHECK(machine.driver.handle_bytes() == 0);
    }
}

TEST_CASE_FIXTURE(OnMachine, "out of memory names the bytes needed and free, and is temporary" * on_machines) {
    ArenaOf arena{machine.driver, "full"};
    void* const first = arena.allocate(8_MiB);
    write_pattern(machine.driver, first, 8_MiB, 1);
    {
        const Ballast ballast{machine.driver, 64_MiB};
        const std::size_t free = machine.free_bytes();
        try {
            (void)arena.allocate(free + 2_MiB);
            FAIL_CHECK("there was room");
        } catch (const OutOfMemory& error) {
            CHECK(error.needed_bytes() == align_up(free + 2_MiB, 2_MiB));
            CHECK(about(error.free_bytes(), free));
            CHECK(contains(error.what(), "full"));
        }
        CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
        CHECK(about(machine.free_bytes(), free));
        CHECK(has_pattern(machine.driver, first, 8_MiB, 1));
    }
    CHECK(arena.allocate(128_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "growth falls back to the exact need" * on_machines) {
    ArenaOf arena{machine.driver, "tight"};
    (void)arena.allocate(64_MiB); // the next step would be 32 MiB
    machine.driver.fail({.call = Call::create, .nth = 1, .kind = StatusKind::out_of_memory});
    (void)arena.allocate(3_MiB);
    CHECK(machine.driver.injected() == 1);
    CHECK(arena.usage().mapped_bytes == 68_MiB);
    CHECK(machine.driver.handle_bytes() == 68_MiB);
}

TEST_CASE_FIXTURE(OnMachine, "the margin stays free" * on_machines) {
    const std::size_t free = machine.free_bytes();
    ArenaOf arena{machine.driver, "modest", {}, {.margin = free - 40_MiB}};
    (void)arena.allocate(8_MiB);
    CHECK_THROWS_AS((void)arena.allocate(40_MiB), OutOfMemory);
    CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
    CHECK(arena.allocate(16_MiB) != nullptr);
    ArenaOf none{machine.driver, "leaves everything", {}, {.margin = std::numeric_limits<std::size_t>::max()}};
    CHECK_THROWS_AS((void)none.allocate(1), OutOfMemory);
    CHECK(none.usage().mapped_bytes == 0);
}

TEST_CASE_FIXTURE(OnMachine, "allocating from many threads gives disjoint blocks" * on_machines) {
    ArenaOf arena{machine.driver, "threads"};
    std::vector<std::vector<std::pair<Address, std::size_t>>> mine(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < mine.size(); ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = 0; i < 500; ++i) {
                const std::size_t bytes = 256 * (1 + (i * 37 + t) % 700);
                mine[t].emplace_back(address_of(arena.allocate(bytes)), bytes);
                if (i % 3 == 2) {
                    arena.deallocate(reinterpret_cast<void*>(mine[t].front().first), already_idle);
                    mine[t].erase(mine[t].begin());
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::pair<Address, std::size_t>> all;
    for (const auto& blocks : mine) all.insert(all.end(), blocks.begin(), blocks.end());
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i) REQUIRE(all[i - 1].first + all[i - 1].second <= all[i].first);
    CHECK(arena.usage().blocks == all.size());
}

TEST_CASE_FIXTURE(OnMachine, "a large block does not wait over small ones that others free meanwhile" * on_machines) {
    ArenaOf arena{machine.driver, "small frees"};
    std::vector<void*> small;
    for (int i = 0; i < 1024; ++i) small.push_back(arena.allocate(64_KiB));
    const auto free_some = [&] { // 5 MiB, for which another small block would wait
        for (int i = 0; i < 80 && !small.empty(); ++i) {
            arena.deallocate(small.back());
            small.pop_back();
        }
    };
    free_some();
    const std::uint64_t waits = machine.driver.calls(Call::drain);
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::drain) free_some(); // as other threads do during a wait
    });
    (void)arena.allocate(96_MiB); // more than all of them
    CHECK(machine.driver.calls(Call::drain) == waits);
    machine.driver.on_call({});
}

TEST_CASE("a large block waits for the device once, however much others free meanwhile" * on_machines) {
    const Checked machine;
    ArenaOf arena{machine.driver, "large frees"};
    std::vector<void*> small;
    const std::size_t count = 8 * small_change(machine.driver) / 64_KiB;
    for (std::size_t i = 0; i < count; ++i) small.push_back(arena.allocate(64_KiB));
    const auto free_each_fourth = [&](std::size_t from) { // twice the small change, without adjacent blocks
        for (std::size_t i = from; i < small.size(); i += 4) arena.deallocate(std::exchange(small[i], nullptr));
    };
    free_each_fourth(0);
    bool freed = false;
    const std::uint64_t waits = machine.driver.calls(Call::drain);
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::drain && !std::exchange(freed, true)) free_each_fourth(2);
    });
    (void)arena.allocate(32_MiB);
    machine.driver.on_call({});
    CHECK(machine.driver.calls(Call::drain) == waits + 1);
}

TEST_CASE_FIXTURE(OnMachine, "a small block waits once, however much other threads free" * on_machines) {
    ArenaOf arena{machine.driver, "another shard"};
    std::vector<void*> small;
    const std::size_t count = 8 * small_change(machine.driver) / 64_KiB;
    std::thread other{[&] {
        for (std::size_t i = 0; i < count; ++i) small.push_back(arena.allocate(64_KiB));
    }};
    other.join();
    std::size_t turn = 0;
    const auto free_some = [&] { // half of the small change, one block of each chunk, so that no whole chunk is free
        for (std::size_t i = turn; turn < 12 && i < small.size(); i += 16) arena.deallocate(small[i]);
        ++turn;
    };
    for (int i = 0; i < 4; ++i) free_some();
    const std::uint64_t waits = machine.driver.calls(Call::drain);
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::drain) free_some();
    });
    (void)arena.allocate(64_KiB);
    machine.driver.on_call({});
    CHECK(machine.driver.calls(Call::drain) == waits + 1);
}

} // namespace arena_allocate_test
