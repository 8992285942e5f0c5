// Threads that need freed memory share waits for the device. No timeouts: a failure hangs.
#include "support/each_of.hpp"

namespace threads_fences_test {
using namespace test;

TEST_CASE_FIXTURE(OnHost, "threads that want memory while one waits for it all go on, also if that wait fails") {
    const bool fails = either("that fails", "that succeeds");
    TaggedArena<MachineDriver> arena{machine.driver, "full", {}, {.capacity = 40_MiB}};
    std::vector<void*> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(arena.allocate(8_MiB));
    // Free once the device has completed the work submitted so far.
    for (void* const block : blocks) arena.deallocate(block);
    const auto take = [&] { (void)arena.allocate(8_MiB); };
    if (fails) machine.driver.fail({.call = Call::drain});
    Stuck first{machine.driver, Call::drain, take}; // ends last: its observer sees all calls
    Threads others{4, [&](std::size_t) { take(); }};
    if (fails) CHECK_THROWS_AS(first.go_on(), DriverError);
    if (!fails) first.go_on();
    CHECK_NOTHROW(others.join());
    CHECK(machine.driver.calls(Call::drain) <= 5);
    CHECK(arena.usage().blocks == (fails ? 4 : 5));
}

TEST_CASE("a thread whose blocks were freed before another one's wait for the device goes on with that one") {
    const Checked machine{host_machine};
    TaggedArena<MachineDriver> arena{machine.driver, "two threads"};
    const auto let_wait = [&](std::size_t bytes) { // enough to wait for the device
        void* const one = arena.allocate(bytes);
        void* const two = arena.allocate(bytes);
        arena.deallocate(one);
        arena.deallocate(two);
    };
    Turnstile freed;
    Turnstile go;
    Doing other{[&] {
        let_wait(16_MiB);
        freed.pass();
        go.pass();
        (void)arena.allocate(16_MiB);
    }};
    freed.await();
    Stuck first{machine.driver, Call::drain, [&] {
                    let_wait(64_MiB);
                    (void)arena.allocate(64_MiB);
                }};
    freed.open();
    go.await();
    go.open();
    first.go_on();
    other.join();
    CHECK(machine.driver.calls(Call::drain) == 1);
}

TEST_CASE_FIXTURE(OnHost,
                  "an arena that is closed while a thread is about to note a free, or asks for one, leaves no event") {
    const bool frees = either("to note a free", "that asks for one");
    const OwnStream stream{machine.driver};
    TaggedArena<MachineDriver> arena{machine.driver, "closed"};
    void* const blocks[] = {arena.allocate(1_MiB), arena.allocate(1_MiB)};
    arena.deallocate(blocks[0], stream);
    Stuck beside{machine.driver, frees ? Call::record : Call::query, [&] {
                     if (frees) arena.deallocate(blocks[1], stream);
                     if (!frees) (void)arena.allocate(8_MiB);
                 }};
    arena.close();
    CHECK_THROWS_AS(beside.go_on(), Misuse);
    CHECK(machine.driver.outstanding().events == 0);
}

TEST_CASE_FIXTURE(OnHost, "a block freed while a close waits for the device is free, also if that wait fails") {
    const bool fails = either("that fails", "that succeeds");
    TaggedArena<MachineDriver> arena{machine.driver, "closing"};
    void* const block = arena.allocate(8_MiB);
    if (fails) machine.driver.fail({.call = Call::drain});
    Stuck closing{machine.driver, Call::drain, [&] { arena.close(); }};
    CHECK(contains(text_of<Misuse>([&] { (void)arena.allocate(1_MiB); }), "tag \"closing\" is being closed"));
    CHECK_NOTHROW(arena.deallocate(block));
    if (!fails) return closing.go_on();
    CHECK_THROWS_AS(closing.go_on(), DriverError);
    CHECK(arena.usage().blocks == 0);
    CHECK_NOTHROW(arena.deallocate(arena.allocate(8_MiB)));
}

TEST_CASE("threads with a block each are refused none while there is room for all of them") {
    constexpr std::size_t count = 8;
    const Checked machine{host_machine};
    TaggedArena<MachineDriver> arena{machine.driver, "just enough", {}, {.capacity = count * 8_MiB}};
    Threads all{count, [&](std::size_t) {
                    for (int round = 0; round < 1000; ++round) {
                        void* const block = arena.allocate(8_MiB);
                        std::this_thread::yield();
                        arena.deallocate(block);
                    }
                }};
    CHECK_NOTHROW(all.join());
}

TEST_CASE_FIXTURE(OnHost, "an allocation that needs all that waits waits for the device once") {
    TaggedArena<MachineDriver> arena{machine.driver, "full", {}, {.capacity = 64_MiB}};
    std::vector<void*> blocks;
    for (int i = 0; i < 32; ++i) blocks.push_back(arena.allocate(2_MiB));
    for (void* const block : blocks) arena.deallocate(block);
    (void)arena.allocate(3_MiB); // none of them fits
    CHECK(machine.driver.calls(Call::drain) == 1);
}

TEST_CASE_FIXTURE(OnHost, "blocks can be freed while a thread asks how large the device is") {
    TaggedArena<MachineDriver> arena{machine.driver, "asked", {}, {.capacity = 34_MiB}};
    std::vector<void*> blocks;
    Stuck first{machine.driver, Call::memory, [&] {
                    for (int i = 0; i < 17; ++i) blocks.push_back(arena.allocate(2_MiB));
                    for (int i = 0; i < 16; ++i) arena.deallocate(blocks[static_cast<std::size_t>(i)]);
                    (void)arena.allocate(2_MiB); // checks whether 32 MiB is enough to wait for
                }};
    arena.deallocate(blocks.back());
    first.go_on();
}
} // namespace threads_fences_test
