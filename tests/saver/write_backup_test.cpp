// Changing the backup of paused memory.
#include "backup/backup_support.hpp"
#include "backup/compressed_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"

namespace saver_write_backup_test {
using namespace test;
using Bytes = std::vector<unsigned char>;

TEST_CASE_FIXTURE(OnSaver, "write_backup: a resume restores the new bytes, and the others" * on_machines) {
    constexpr std::size_t size = 5'000'000; // spans several pages and units
    const Arena arena = saver.arena("tag", each_of(keepers()).policy);
    const Filled small{machine.driver, arena, 5000, 2};
    const Buffer<unsigned char> block{arena, size};
    Bytes is = pattern(size, 1);
    write_bytes(machine.driver, block.data(), is);
    const auto change = [&](std::size_t offset, std::size_t bytes, std::uint64_t seed) {
        const Bytes fresh = pattern(bytes, seed);
        saver.write_backup(block.data() + offset, fresh.data(), bytes);
        std::memcpy(is.data() + offset, fresh.data(), bytes);
    };
    const auto resume = [&] {
        saver.resume("tag");
        CHECK(read_bytes(machine.driver, block.data(), size) == is);
        CHECK(small.whole());
    };
    for (std::uint64_t round = 0; round < 2; ++round) {
        saver.pause("tag");
        const std::pair<std::size_t, std::size_t> parts[] = {
            {0, 1}, {size - 1, 1}, {4095, 2}, {100'001, 70'000}, {1'500'000, 3'000'000}};
        for (const auto& [offset, bytes] : parts) change(offset, bytes, 10 * offset + bytes + round);
        CHECK(std::memcmp(saver.backup_view(block.data(), size).data(), is.data(), size) == 0);
        CHECK(saver.backup_view(block.data(), 0).size_bytes == 0);
        resume();
    }
    saver.pause("tag"); // marks bytes as saved, for policies that save once
    resume();
    saver.pause("tag");
    change(0, size, 77);
    const auto taken = [&] { return machine.driver.host_bytes() + row_of(saver, "tag").backed_up_bytes; };
    change(0, 1_MiB, 78);
    const std::size_t before = taken();
    for (std::uint64_t seed = 79; seed < 87; ++seed) change(0, 1_MiB, seed);
    CHECK(taken() <= before + 2_MiB); // what they replace is free again; coded sizes differ a little
    resume();
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnMachine, "write_backup: bytes kept for a single pause, and in an arena with a saver of its own") {
    const Bytes fresh = pattern(300, 5);
    {
        MemorySaver saver{machine.driver};
        const Buffer<unsigned char> block{saver.arena("a", HostBackup{.refresh = Refresh::once}), 1 << 20};
        pause_and_resume(saver, "a");
        saver.pause("a", {.bytes = HostBackup{}});
        saver.write_backup(block.data() + 7, fresh.data(), fresh.size());
        for (int round = 0; round < 2; ++round) { // the tag's own backup is older
            saver.resume("a");
            CHECK(read_bytes(machine.driver, block.data() + 7, fresh.size()) == fresh);
            saver.pause("a");
        }
    }
    TaggedArena alone{machine.driver, "alone", HostBackup{}};
    void* const block = alone.allocate(1_MiB);
    alone.pause();
    alone.write_backup(block, fresh.data(), fresh.size());
    alone.resume();
    CHECK(read_bytes(machine.driver, block, fresh.size()) == fresh);
    alone.deallocate(block);
}

TEST_CASE_FIXTURE(OnSaver, "write_backup: misuse says why, and changes nothing") {
    const Arena arena = saver.arena("a", HostBackup{});
    Filled block{machine.driver, arena, 1_MiB};
    Buffer<unsigned char> lost{saver.arena("lost", Discard{}), 1_MiB};
    Buffer<unsigned char> freed{arena, 1_MiB};
    const Bytes fresh = pattern(4096, 5);
    const auto refused = [&](void* to, const void* from, std::size_t bytes, const char* why) {
        check_says<Misuse>(why, [&] { saver.write_backup(to, from, bytes); });
    };
    refused(block.data(), fresh.data(), 4096, "it is not paused");
    saver.pause();
    refused(block.data(), fresh.data(), 0, "the size is 0");
    refused(block.data(), nullptr, 4096, "null");
    refused(block.data() + 1_MiB - 1, fresh.data(), 4096, "past the end");
    refused(lost.data(), fresh.data(), 4096, "keeps no bytes");
    int mine = 0;
    refused(&mine, fresh.data(), 4, "no tag of this saver");
    unsigned char* const gone = freed.data();
    freed.reset();
    refused(gone, fresh.data(), 4096, "no live block");
    saver.forget_backup("a");
    refused(block.data(), fresh.data(), 4096, "keeps no bytes");
    saver.resume("a");
    block.write(1);
    pause_and_resume(saver, "a");
    CHECK(block.whole());
}

TEST_CASE_FIXTURE(OnStream, "write_backup: a range that reaches into the next block is refused" * on_machines) {
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1});
    const auto refuses = [&](void* block, std::size_t bytes) {
        CAPTURE(bytes);
        char* const end = static_cast<char*>(block) + bytes;
        const Bytes other(4096, 9);
        CHECK(saver.owns(end - 1));
        CHECK_THROWS_AS((void)saver.gate(end - 1, 2), Misuse);
        CHECK_THROWS_AS((void)saver.gate(end - 1, 1_GiB), Misuse);
        CHECK_THROWS_AS(saver.invalidate(end - 1, 1_GiB), Misuse);
        CHECK_THROWS_AS((void)saver.backup_view(end - 1, 4096), Misuse);
        CHECK_THROWS_AS(saver.write_backup(end - 1, other.data(), other.size()), Misuse);
        CHECK_THROWS_AS(saver.write_backup(end - 1, other.data(), 2), Misuse);
        CHECK_THROWS_AS((void)saver.resume_async("tag", {.first = {{block, 1_GiB}}}), Misuse);
    };
    const std::size_t odd = 1_MiB + 256;
    void* const first = arena.allocate(odd);
    const Filled next{machine.driver, arena, odd};
    arena.deallocate(arena.allocate(60'000, stream), stream);
    void* const again = arena.allocate(49'920, stream); // may reuse the place of a larger one
    saver.pause("tag");
    refuses(first, odd);
    refuses(again, 49'920);
    saver.resume("tag");
    CHECK(next.whole());
    arena.deallocate(first, already_idle);
    arena.deallocate(again, already_idle);
}

TEST_CASE_FIXTURE(OnSaver, "write_backup: damage beside the bytes written is still found" * on_machines) {
    Filled block{machine.driver, saver.arena("tag", Verified<HostBackup>{}), 4_MiB};
    saver.pause("tag");
    std::byte& kept = const_cast<std::byte*>(saver.backup_view(block.data(), 4_MiB).data())[100];
    kept ^= std::byte{1};
    const unsigned char one = 5;
    for (const int at : {0, 5000}) CHECK_THROWS_AS(saver.write_backup(block.data() + at, &one, 1), BackupDamaged);
    CHECK_THROWS_AS(saver.resume("tag"), BackupDamaged);
    kept ^= std::byte{1};
    saver.write_backup(block.data() + 5000, &one, 1);
    kept ^= std::byte{1};
    const Bytes all = pattern(4_MiB, 2);
    saver.write_backup(block.data(), all.data(), 4_MiB); // replaces the damaged bytes
    saver.resume("tag");
    CHECK(read_bytes(machine.driver, block.data(), 4_MiB) == all);
}

TEST_CASE_FIXTURE(OnSaver, "write_backup: a call that could not write is made again, also of bytes that are checked") {
    const AnyPolicy policy =
        each_of({AnyPolicy{Verified<FileBackup>{in_file()}}, AnyPolicy{compressed(Verified<FileBackup>{in_file()})}});
    const Filled block{machine.driver, saver.arena("tag", policy), 4_MiB};
    saver.pause("tag");
    const Bytes fresh = pattern(70'000, 2);
    Bytes is = pattern(4_MiB, 1);
    std::memcpy(is.data() + 5000, fresh.data(), fresh.size());
    std::uint64_t grown = 0;
    for (int i = 0; i < 8; ++i) {
        machine.driver.fail({.call = Call::write_file});
        CHECK_THROWS_AS(saver.write_backup(block.data() + 5000, fresh.data(), fresh.size()), Error);
        if (i == 0) grown = machine.driver.calls(Call::allocate_file);
    }
    CHECK(machine.driver.calls(Call::allocate_file) == grown); // the place of a call that failed is free again
    saver.write_backup(block.data() + 5000, fresh.data(), fresh.size());
    saver.resume("tag");
    CHECK(read_bytes(machine.driver, block.data(), 4_MiB) == is);
}

TEST_CASE_FIXTURE(OnSaver, "write_backup: a checked block that begins within a page of its file" * on_machines) {
    const Arena arena = saver.arena("tag", Verified<FileBackup>{in_file()});
    const Filled first{machine.driver, arena, 512};
    const Filled second{machine.driver, arena, 512};
    saver.pause("tag");
    const unsigned char one = 5;
    saver.write_backup(second.data() + 100, &one, 1);
    saver.resume("tag");
    CHECK(first.whole());
    Bytes is = pattern(512, 1);
    is[100] = one;
    CHECK(read_bytes(machine.driver, second.data(), 512) == is);
}

TEST_CASE("write_backup: switched off, work submitted before still reads the old bytes") {
    const MachineDriver driver{HostDriver{1_GiB}};
    MemorySaver saver{driver, {.enabled = false}};
    const Buffer<unsigned char> block{saver.arena("a", HostBackup{}), 4096};
    const Bytes fresh = pattern(4096, 5);
    HeldStream busy{driver};
    REQUIRE(driver.inner().fill(address_of(block.data()), 1, 4096, busy.get()).ok()); // runs once the stream does
    saver.pause("a");                                                                 // waits for nothing
    Turnstile called;
    called.open();
    std::atomic<bool> drained{false};
    driver.on_call([&](const CallRecord& made) {
        if (made.call != Call::drain && made.call != Call::copy_to_device) return;
        if (made.call == Call::drain) drained = true;
        called.pass();
    });
    Doing writing{[&] { saver.write_backup(block.data(), fresh.data(), fresh.size()); }};
    called.await();
    CHECK(drained);
    busy.finish();
    writing.join();
    driver.on_call({});
    CHECK(read_bytes(driver, block.data(), fresh.size()) == fresh);
}
} // namespace saver_write_backup_test
