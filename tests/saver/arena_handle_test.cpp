// Arena as a value: a handle that is copied and outlives its origin.
#include "support/machines.hpp"

namespace saver_arena_handle_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "handles of one arena are equal" * on_machines) {
    const Arena first = saver.arena("tag", Zero{});
    const Arena again = saver.arena("tag");
    const Arena other = saver.arena("other");
    CHECK(first == again);
    CHECK(!(first == other));
    CHECK(first);
    CHECK(first.tag() == "tag");
    CHECK(first.device() == 0);
    CHECK(&first.base() == &again.base());
    void* const block = first.allocate(1_MiB, 64_KiB);
    CHECK(address_of(block) % 64_KiB == 0);
    CHECK(again.usage().used_bytes == 1_MiB);
    again.deallocate(block);
    CHECK(first.usage().blocks == 0);
}

TEST_CASE("a default handle holds nothing") {
    const Arena arena;
    CHECK(!arena);
    CHECK_THROWS_AS((void)arena.allocate(1), Misuse);
    CHECK_THROWS_AS(arena.deallocate(nullptr), Misuse);
    CHECK_THROWS_AS(arena.deallocate(nullptr, already_idle), Misuse);
    CHECK_THROWS_AS(arena.deallocate(nullptr, StreamRef{}), Misuse);
    CHECK_THROWS_AS((void)arena.tag(), Misuse);
    CHECK_THROWS_AS((void)arena.device(), Misuse);
    CHECK_THROWS_AS((void)arena.usage(), Misuse);
    arena.deallocate_quietly(nullptr);
}
} // namespace saver_arena_handle_test
