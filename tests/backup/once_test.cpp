// Refresh::once: bytes count as saved only once the memory has been released with all of them saved.
#include "backup/backup_support.hpp"
#include "support/bytes.hpp"
#include "support/machines.hpp"
#include "support/vanished.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace backup_once_test {

using namespace test;

namespace {

/// Returns every policy that saves once.
std::vector<NamedPolicy> savers_once() {
    std::vector<NamedPolicy> some;
    for (const NamedPolicy& keeper : keepers()) {
        if (contains(keeper.name, "once")) some.push_back(keeper);
    }
    REQUIRE(some.size() == (no_codec().empty() ? 4 : 3));
    return some;
}

} // namespace

TEST_CASE("once: after a pause that changed nothing all is saved anew" * on_machines) {
    for (const auto& once : savers_once()) {
        for (const bool other_fails : {true, false}) {
            CAPTURE(once.name);
            CAPTURE(other_fails);
            const Checked machine;
            MemorySaver saver{machine.driver};
            void* const block = saver.arena("loading", once.policy).allocate(4_MiB);
            write_pattern(machine.driver, block, 4_MiB, 1);
            if (other_fails) { // another tag's bytes cannot be saved
                (void)arena_in_vanished_directory(saver, "cold").allocate(2_MiB);
            } else {
                machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
            }
            CHECK_THROWS_AS((void)saver.pause(), Error);
            machine.driver.heal();
            CHECK(row_of(saver, "loading").state == "active");
            write_pattern(machine.driver, block, 4_MiB, 2); // it was never paused: the program continues loading
            CHECK(saver.pause("loading").saved_bytes == 4_MiB);
            (void)saver.resume("loading");
            CHECK(has_pattern(machine.driver, block, 4_MiB, 2));
            CHECK(saver.pause("loading").saved_bytes == 0);
            (void)saver.resume("loading");
        }
    }
}

TEST_CASE("once: what a pause left active is saved anew by the next" * on_machines) {
    for (const auto& once : savers_once()) {
        CAPTURE(once.name);
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("loading", once.policy);
        void* const first = arena.allocate(2_MiB);
        void* const second = arena.allocate(2_MiB);
        write_pattern(machine.driver, first, 2_MiB, 1);
        write_pattern(machine.driver, second, 2_MiB, 2);
        machine.driver.fail({.call = Call::unmap, .nth = 2});
        CHECK_THROWS_AS((void)saver.pause(), Error);
        REQUIRE(arena.usage().state == "partly paused");
        write_pattern(machine.driver, second, 2_MiB, 3);
        CHECK(saver.pause().saved_bytes == 2_MiB);
        (void)saver.resume();
        CHECK(has_pattern(machine.driver, first, 2_MiB, 1));
        CHECK(has_pattern(machine.driver, second, 2_MiB, 3));
    }
}

TEST_CASE("once: a block of which only a part was saved is saved again as a whole" * on_machines) {
    for (const auto& once : savers_once()) {
        CAPTURE(once.name);
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("weights", once.policy);
        void* const low = arena.allocate(2_MiB);
        void* const high = arena.allocate(2_MiB);
        arena.deallocate(low, already_idle);
        arena.deallocate(high, already_idle);
        void* const block = arena.allocate(4_MiB);
        REQUIRE(block == low); // it spans two extents
        REQUIRE(machine.driver.outstanding().handles == 2);
        machine.driver.fail({.call = Call::unmap, .nth = 2});
        CHECK_THROWS_AS((void)saver.pause("weights", {.bytes = Discard{}}), Error);
        CHECK(saver.pause().saved_bytes == 2_MiB); // the half that is still resident
        (void)saver.resume();
        write_pattern(machine.driver, block, 4_MiB, 7); // the new weights
        CHECK(saver.pause().saved_bytes == 4_MiB);
        (void)saver.resume();
        CHECK(has_pattern(machine.driver, block, 4_MiB, 7));
        CHECK(saver.pause().saved_bytes == 0);
    }
}

} // namespace backup_once_test
