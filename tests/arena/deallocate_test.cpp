// Freeing blocks: when they can be reused, and refused requests.
#include "support/machines.hpp"

namespace arena_deallocate_test {
using namespace test;
using ArenaOf = TaggedArena<MachineDriver>;

TEST_CASE_FIXTURE(OnMachine, "a block freed as idle is reused at once" * on_machines) {
    ArenaOf arena{machine.driver, "idle"};
    arena.deallocate(nullptr);
    arena.deallocate(nullptr, already_idle);
    arena.deallocate(nullptr, StreamRef{});
    CHECK(machine.driver.handle_bytes() == 0);
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

TEST_CASE_FIXTURE(OnMachine, "freeing over and over does not grow the arena" * on_machines) {
    ArenaOf arena{machine.driver, "churn"};
    for (int i = 0; i < 2000; ++i) arena.deallocate(arena.allocate(100'000));
    for (int i = 0; i < 200; ++i) arena.deallocate(arena.allocate(3_MiB));
    CHECK(arena.usage().mapped_bytes <= 96_MiB + small_change(machine.driver));
}

TEST_CASE_FIXTURE(OnMachine, "foreign, interior and freed pointers are told apart" * on_machines) {
    ArenaOf arena{machine.driver, "mine"};
    ArenaOf other{machine.driver, "other"};
    auto* const large = static_cast<unsigned char*>(arena.allocate(3_MiB));
    auto* const small = static_cast<unsigned char*>(arena.allocate(1000));
    const auto refused = [&](const char* text, void* pointer) {
        check_says<Misuse>(text, [&] { arena.deallocate(pointer, already_idle); });
    };
    refused("not a pointer of tag \"mine\"", other.allocate(1_MiB));
    refused("not a pointer of tag \"mine\"", &other);
    for (unsigned char* const pointer : {large + 4096, large + 1, small + 256, small + 999})
        refused("inside a block", pointer);
    refused("no block of this tag", large + 64_MiB);
    for (unsigned char* const pointer : {small, large}) {
        arena.deallocate(pointer);
        refused("freed before", pointer);
    }
    CHECK(arena.usage().blocks == 0);
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
} // namespace arena_deallocate_test
