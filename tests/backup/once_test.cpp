// Refresh::once: bytes count as saved only once the memory has been released with all of them saved.
#include "backup/backup_support.hpp"
#include "support/each_of.hpp"
#include "support/vanished.hpp"

namespace backup_once_test {
using namespace test;

/// Returns every policy that saves once.
std::vector<NamedPolicy> savers_once() {
    std::vector<NamedPolicy> some;
    for (const NamedPolicy& keeper : keepers()) {
        if (contains(keeper.name, "once")) some.push_back(keeper);
    }
    REQUIRE(some.size() == (no_codec().empty() ? 4 : 3));
    return some;
}

struct OnOnce : OnSaver {
    const AnyPolicy once = each_of(savers_once(), [](const NamedPolicy& each) { return each.name; }).policy;
};

TEST_CASE_FIXTURE(OnOnce, "once: after a pause that failed without a change everything is saved again" * on_machines) {
    void* const block = saver.arena("loading", once).allocate(4_MiB);
    write_pattern(machine.driver, block, 4_MiB, 1);
    (void)arena_in_vanished_directory(saver, "cold").allocate(2_MiB); // another tag's bytes cannot be saved
    CHECK_THROWS_AS((void)saver.pause(), Error);
    CHECK(row_of(saver, "loading").state == "active");
    write_pattern(machine.driver, block, 4_MiB, 2); // it was never paused: the program continues loading
    CHECK(saver.pause("loading").saved_bytes == 4_MiB);
    (void)saver.resume("loading");
    CHECK(has_pattern(machine.driver, block, 4_MiB, 2));
    CHECK(saver.pause("loading").saved_bytes == 0);
    (void)saver.resume("loading");
}

TEST_CASE_FIXTURE(OnOnce, "once: bytes of pages that are not released are saved all the same" * on_machines) {
    const Arena arena = saver.arena("loading", once);
    void* const first = arena.allocate(2_MiB);
    void* const second = arena.allocate(2_MiB);
    write_pattern(machine.driver, first, 2_MiB, 1);
    write_pattern(machine.driver, second, 2_MiB, 2);
    machine.driver.fail({.call = Call::unmap, .nth = 2});
    CHECK_THROWS_AS((void)saver.pause(), Error);
    REQUIRE(arena.usage().state == "paused");
    CHECK(saver.pause().saved_bytes == 0);
    (void)saver.resume();
    CHECK(has_pattern(machine.driver, first, 2_MiB, 1));
    CHECK(has_pattern(machine.driver, second, 2_MiB, 2));
    CHECK(saver.pause().saved_bytes == 0);
    (void)saver.resume();
}

TEST_CASE_FIXTURE(OnOnce, "once: a pause with other bytes is followed by one that saves everything" * on_machines) {
    void* const block = saver.arena("weights", once).allocate(4_MiB);
    machine.driver.fail({.call = Call::unmap});
    CHECK_THROWS_AS((void)saver.pause("weights", {.bytes = Discard{}}), Error);
    CHECK(saver.pause().saved_bytes == 0); // paused already
    (void)saver.resume();
    write_pattern(machine.driver, block, 4_MiB, 7); // the new weights
    CHECK(saver.pause().saved_bytes == 4_MiB);
    (void)saver.resume();
    CHECK(has_pattern(machine.driver, block, 4_MiB, 7));
    CHECK(saver.pause().saved_bytes == 0);
}
} // namespace backup_once_test
