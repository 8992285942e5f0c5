// Allocating from an arena: sizes, alignments, growth, and refused requests.
#include "support/machines.hpp"

namespace arena_allocate_test {
using namespace test;
using ArenaOf = TaggedArena<MachineDriver>;

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

TEST_CASE_FIXTURE(OnMachine, "the first byte of a chunk that small blocks share is not a block" * on_machines) {
    ArenaOf arena{machine.driver, "chunk"};
    void* const first = arena.allocate(256);
    void* const second = arena.allocate(256);
    arena.deallocate(first, already_idle);
    CHECK_THROWS_AS(arena.deallocate(first, already_idle), Misuse);
    arena.deallocate(second, already_idle);
    CHECK_THROWS_AS(arena.deallocate(first, already_idle), Misuse);
}
} // namespace arena_allocate_test
