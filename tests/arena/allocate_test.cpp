// Allocating from an arena: sizes, alignments, growth, and refused requests.
#include "support/machines.hpp"

namespace arena_allocate_test {
using namespace test;
using ArenaOf = TaggedArena<MachineDriver>;

TEST_CASE_FIXTURE(OnMachine, "small blocks share pages" * on_machines) {
    ArenaOf arena{machine.driver, "small"};
    for (int i = 0; i < 4096; ++i) (void)arena.allocate(4_KiB);
    CHECK(arena.usage().used_bytes == 16_MiB);
    CHECK(arena.usage().mapped_bytes <= 32_MiB);
    CHECK(machine.driver.outstanding().handles <= 8);
}

TEST_CASE_FIXTURE(OnMachine, "reserve takes memory at once" * on_machines) {
    ArenaOf arena{machine.driver, "reserved", {}, {.capacity = 100_MiB, .reserve = 100_MiB}}; // all that it may have
    CHECK(arena.usage().mapped_bytes == 100_MiB);
    const auto creates = machine.driver.calls(Call::create);
    for (int i = 0; i < 10; ++i) (void)arena.allocate(10_MiB);
    CHECK(machine.driver.calls(Call::create) == creates);
}

TEST_CASE_FIXTURE(OnMachine, "what can never be is refused, and the arena stays usable" * on_machines) {
    ArenaOf arena{machine.driver, "strict", {}, {.capacity = 64_MiB}};
    check_says<Misuse>("strict", [&] { (void)arena.allocate(0); });
    check_says<Misuse>("capacity", [&] { (void)arena.allocate(static_cast<std::size_t>(-4096)); });
    check_says<Misuse>("alignment is 0", [&] { (void)arena.allocate(1_MiB, 0); });
    check_says<Misuse>("power of two", [&] { (void)arena.allocate(1_MiB, 768); });
    check_says<Misuse>("more than 1 GiB", [&] { (void)arena.allocate(1_MiB, std::size_t{1} << 63U); });
    void* const most = arena.allocate(60_MiB);
    check_says<Misuse>("tag \"strict\": 8.00 MiB more would exceed its capacity of 64.00 MiB",
                       [&] { (void)arena.allocate(8_MiB); });
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
        const auto error = thrown<OutOfMemory>([&] { (void)arena.allocate(free + 2_MiB); });
        CHECK(error.needed_bytes() == align_up(free + 2_MiB, 2_MiB));
        CHECK(about(error.free_bytes(), free));
        CHECK(contains(error.what(), "full"));
        CHECK(arena.usage().mapped_bytes == machine.driver.handle_bytes());
        CHECK(about(machine.free_bytes(), free));
        CHECK(has_pattern(machine.driver, first, 8_MiB, 1));
    }
    CHECK(arena.allocate(128_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "growth falls back to the exact need" * on_machines) {
    for (const StatusKind kind : {StatusKind::out_of_memory, StatusKind::out_of_host_memory}) {
        ArenaOf arena{machine.driver, "tight"};
        (void)arena.allocate(64_MiB); // the next step would be 32 MiB
        const auto failed = machine.driver.injected();
        machine.driver.fail({.call = Call::create, .nth = 1, .kind = kind});
        (void)arena.allocate(3_MiB);
        CHECK(machine.driver.injected() == failed + 1);
        CHECK(arena.usage().mapped_bytes == 68_MiB);
        CHECK(machine.driver.handle_bytes() == 68_MiB);
    }
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
