// Asynchronous backups: a policy whose tickets complete when the test allows it, and what may happen while a ticket is
// incomplete.
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

namespace backup_async_policy_test {
using namespace test;
using Manual = TaggedArena<MachineDriver, ManualBackup>;

TEST_CASE_FIXTURE(OnMachine, "blocks freed in a busy extent become free afterwards, and are not restored" * on_hosts) {
    const ManualBackup policy;
    Manual arena{machine.driver, "queued", policy, {.reserve = 8_MiB}}; // one extent
    OwnedStream stream;
    REQUIRE(stream.open(machine.driver).ok());
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < 4; ++i) {
        blocks.push_back(arena.allocate(2_MiB));
        write_pattern(machine.driver, blocks.back(), 2_MiB, i);
    }
    const auto free_three = [&] {
        arena.deallocate(blocks[0]);
        arena.deallocate(blocks[1], stream.get());
        arena.deallocate(blocks[2], already_idle);
        CHECK(arena.usage().blocks == 1);
        for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(arena.deallocate(blocks[static_cast<std::size_t>(i)]), Misuse);
    };
    const auto not_one_of_them = [&](void* block) {
        return std::find(blocks.begin(), blocks.end(), block) == blocks.end();
    };

    SUBCASE("of a pause") {
        Doing pause{[&] { (void)arena.pause(); }};
        policy.copies->await(Way::out, 4);
        free_three();
        for (int i = 0; i < 4; ++i) CHECK(not_one_of_them(arena.allocate(2_MiB)));
        policy.copies->finish();
        pause.join();
        CHECK(policy.copies->forgotten().size() == 3);
        policy.copies->held = false;
        (void)arena.resume();
        CHECK(policy.copies->seen(Way::back).size() == 1);
        CHECK(policy.copies->seen(Way::back).front().address == address_of(blocks[3]));
    }
    SUBCASE("of a pause that fails: they wait for the device as any other") {
        Doing pause{[&] { CHECK_THROWS_AS((void)arena.pause(), DriverError); }};
        policy.copies->await(Way::out, 4);
        free_three();
        policy.copies->fails = true;
        policy.copies->finish();
        pause.join();
        policy.copies->fails = false;
        CHECK(arena.usage().blocks == 1);
        CHECK(arena.usage().state == "active");
    }
    SUBCASE("of a resume") {
        policy.copies->held = false;
        (void)arena.pause();
        policy.copies->held = true;
        Doing resume{[&] { (void)arena.resume(); }};
        policy.copies->await(Way::back, 4);
        free_three();
        for (int i = 0; i < 4; ++i) CHECK(not_one_of_them(arena.allocate(2_MiB)));
        policy.copies->finish();
        resume.join();
    }
    CHECK(has_pattern(machine.driver, blocks[3], 2_MiB, 3));
    // Now their memory is reused, or released to the device.
    (void)arena.trim();
    bool reused = false;
    for (int i = 0; i < 16 && !reused; ++i) reused = arena.allocate(2_MiB) == blocks[2];
    unsigned char byte = 0;
    const bool mapped = machine.driver.inner().copy_to_host(&byte, address_of(blocks[2]), 1, stream.get()).ok();
    CHECK(reused == mapped);
    CHECK(machine.driver.drain().ok());
}

TEST_CASE_FIXTURE(OnMachine, "memory paused in several batches is restored from each one's slot" * on_hosts) {
    const ManualBackup own;
    const ManualBackup once;
    own.copies->held = once.copies->held = false;
    Manual arena{machine.driver, "batches", own};
    void* const first = arena.allocate(3_MiB);
    void* const small = arena.allocate(768);
    write_pattern(machine.driver, first, 3_MiB, 1);
    write_pattern(machine.driver, small, 768, 2);
    CHECK(arena.pause().saved_bytes == 3_MiB + 768);
    void* const second = arena.allocate(2_MiB);
    void* const given_up = arena.allocate(2_MiB);
    write_pattern(machine.driver, second, 2_MiB, 3);
    CHECK(arena.pause({.bytes = once}).saved_bytes == 4_MiB); // only of the rest
    CHECK(own.copies->invalidated == 1);                      // its backup of the rest is stale
    arena.deallocate(given_up);                               // its backup is dropped too, wherever it is
    CHECK(once.copies->forgotten().size() == 1);
    void* const third = arena.allocate(2_MiB);
    write_pattern(machine.driver, third, 2_MiB, 4);
    CHECK(arena.pause().saved_bytes == 2_MiB);
    void* const fourth = arena.allocate(2_MiB);
    (void)arena.pause({.bytes = Discard{.poison = static_cast<unsigned char>(0x5A)}});
    CHECK(arena.pause().released_bytes == 0);
    CHECK(arena.usage().state == "paused");
    CHECK(own.copies->seen(Way::out).size() == 3);
    CHECK(once.copies->seen(Way::out).size() == 2);

    once.copies->fails = true; // one of them fails: none is consumed
    CHECK_THROWS_AS((void)arena.resume(), DriverError);
    CHECK(arena.usage().state == "paused");
    once.copies->fails = false;

    (void)arena.resume();
    CHECK(arena.usage().state == "active");
    CHECK(has_pattern(machine.driver, first, 3_MiB, 1));
    CHECK(has_pattern(machine.driver, small, 768, 2));
    CHECK(has_pattern(machine.driver, second, 2_MiB, 3));
    CHECK(has_pattern(machine.driver, third, 2_MiB, 4));
    CHECK(all_are(machine.driver, fourth, 2_MiB, 0x5A));
}
} // namespace backup_async_policy_test
