// A saver releases memory that none of its tags uses before it throws OutOfMemory.
#include "support/each_of.hpp"

namespace saver_relief_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "relief: a reserve that fits nowhere leaves no tag behind" * on_quick) {
    const Arena other = saver.arena("other");
    void* const block = other.allocate(200_MiB);
    const ArenaOptions options{.reserve = 300_MiB};
    const Ballast ballast{machine.driver, 160_MiB};
    CHECK_THROWS_AS((void)saver.arena("reserved", Discard{}, options), OutOfMemory);
    CHECK(saver.usage().size() == 1);
    other.deallocate(block, already_idle);
    CHECK(saver.arena("reserved", Discard{}, options).usage().mapped_bytes == 300_MiB);
    CHECK(other.usage().mapped_bytes == 0);
    (void)saver.pause("reserved");
    CHECK(saver.arena("reserved").usage().mapped_bytes == 0); // it was mapped before
}

TEST_CASE_FIXTURE(OnSaver, "relief: while one thread takes a reserve, others find and make tags") {
    const Arena known = saver.arena("known");
    Stuck stuck{machine.driver, Call::create,
                [&] { (void)saver.arena("reserved", Discard{}, ArenaOptions{.reserve = 30_MiB}); }};
    CHECK(saver.arena("known") == known);
    saver.deallocate(saver.arena("new").allocate(1_MiB));
    (void)saver.pause("new");
    CHECK(row_of(saver, "reserved").mapped_bytes < 30_MiB);
    stuck.go_on();
    CHECK(row_of(saver, "reserved").mapped_bytes == 30_MiB);
}

TEST_CASE_FIXTURE(OnSaver, "relief: threads that ask for one tag's reserve at once take it once") {
    const auto ask = [&] {
        const Arena arena = saver.arena("reserved", Discard{}, ArenaOptions{.reserve = 30_MiB});
        CHECK(arena.usage().mapped_bytes >= 30_MiB);
        (void)arena.allocate(1_MiB);
    };
    {
        Doing one{ask};
        Doing two{ask};
        Doing three{ask};
    }
    CHECK(row_of(saver, "reserved").mapped_bytes == 30_MiB);
    CHECK(row_of(saver, "reserved").blocks == 3);
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "relief: pages of a tag that could not be made, and not be released then, serve another call") {
    const bool reclaim = either("reclaimed", "taken");
    const Arena needs = saver.arena("needs");
    for (const Call call : {Call::allow_access, Call::unmap})
        machine.driver.fail({.call = call, .lasting = Lasting::onwards});
    CHECK_THROWS_AS((void)saver.arena("refused", {.reserve = 400_MiB}), DriverError);
    machine.driver.heal();
    CHECK(machine.driver.handle_bytes() == 400_MiB);
    if (reclaim) CHECK(saver.reclaim(300_MiB).unused_bytes == 400_MiB);
    const Buffer<char> block{needs, 400_MiB};
    CHECK(machine.driver.handle_bytes() == 400_MiB);
}
} // namespace saver_relief_test
