// Backups in files: how much disk space they use, and what happens when the disk is full.
#include "backup/backup_support.hpp"
#include "memsaver/backup/verified.hpp"

namespace backup_file_backup_test {
using namespace test;

TEST_CASE_FIXTURE(OnMachine, "FileBackup: disk use is constant, and falls when blocks are freed" * on_machines) {
    const FileWatch watch{machine.driver};
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("cold", in_file());
    void* const kept = arena.allocate(3_MiB + 1);
    void* given_up = arena.allocate(5_MiB);
    std::size_t full = 0;
    for (std::uint64_t cycle = 0; cycle < 4; ++cycle) {
        write_pattern(machine.driver, kept, 3_MiB + 1, cycle);
        write_pattern(machine.driver, given_up, 5_MiB, cycle + 10);
        (void)saver.pause("cold");
        if (cycle == 0) full = watch.disk_bytes();
        CHECK(watch.disk_bytes() == full);
        (void)saver.resume("cold");
        CHECK(has_pattern(machine.driver, kept, 3_MiB + 1, cycle));
        CHECK(has_pattern(machine.driver, given_up, 5_MiB, cycle + 10));
        if (cycle == 1) { // another block in its place: the same space
            saver.deallocate(given_up);
            given_up = arena.allocate(5_MiB);
        }
    }
    CHECK(full >= 8_MiB);
    CHECK(full <= 8_MiB + 64_KiB);
    (void)saver.pause("cold");
    saver.deallocate(given_up); // while paused: its space is freed by the next operation
    CHECK(row_of(saver, "cold").backed_up_bytes == 3_MiB + 256);
    (void)saver.resume("cold");
    CHECK(watch.disk_bytes() <= full - 5_MiB);
    CHECK(has_pattern(machine.driver, kept, 3_MiB + 1, 3));
    saver.deallocate(kept); // while active
    CHECK(row_of(saver, "cold").backed_up_bytes == 0);
    saver.prepare("cold");
    CHECK(watch.disk_bytes() <= 64_KiB);
}

TEST_CASE("FileBackup: a full disk leaves the memory active and whole" * on_machines) {
    for (const Call call : {Call::open_file, Call::allocate_file, Call::write_file}) {
        for (const std::uint64_t nth : {std::uint64_t{1}, std::uint64_t{3}}) {
            if (nth != 1 && call != Call::write_file) continue;
            CAPTURE(call_name(call));
            const Checked machine;
            const FileWatch watch{machine.driver};
            MemorySaver saver{machine.driver};
            void* const block = saver.arena("cold", in_file()).allocate(6_MiB + 1);
            write_pattern(machine.driver, block, 6_MiB + 1, 1);
            machine.driver.fail({.call = call, .nth = nth, .lasting = Lasting::onwards});
            const std::string text = text_of<DriverError>([&] { (void)saver.pause("cold"); });
            if (call != Call::write_file) CHECK(contains(text, directory()));
            CHECK(contains(text, "tag \"cold\", "));
            CHECK(row_of(saver, "cold").state == "active");
            CHECK(row_of(saver, "cold").backed_up_bytes == 0);
            CHECK(has_pattern(machine.driver, block, 6_MiB + 1, 1));
            machine.driver.heal();
            (void)saver.pause("cold");
            CHECK(watch.disk_bytes() <= 7_MiB); // no space was reserved twice
            (void)saver.resume("cold");
            CHECK(has_pattern(machine.driver, block, 6_MiB + 1, 1));
        }
    }
}

TEST_CASE("disk space for a block that replaces a freed one is allocated again, before anything is written") {
    const Checked machine{host_machine};
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("cold", in_file());
    void* block = arena.allocate(4_MiB);
    saver.prepare("cold");
    arena.deallocate(block, already_idle);
    block = arena.allocate(4_MiB);
    write_pattern(machine.driver, block, 4_MiB, 1);
    machine.driver.fail({.call = Call::allocate_file});
    CHECK_THROWS_AS(saver.prepare("cold"), Error);
    saver.prepare("cold");
    const auto written = machine.driver.calls(Call::write_file);
    machine.driver.fail({.call = Call::allocate_file});
    CHECK_THROWS_AS((void)saver.pause("cold"), Error);
    CHECK(machine.driver.calls(Call::write_file) == written);
    pause_and_resume(saver, "cold");
    CHECK(has_pattern(machine.driver, block, 4_MiB, 1));
}
} // namespace backup_file_backup_test
