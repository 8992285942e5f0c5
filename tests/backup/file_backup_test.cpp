// Backups in files: how much disk space they use, and what happens when the disk is full.
#include "backup/backup_support.hpp"
#include "backup/compressed_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"

namespace backup_file_backup_test {
using namespace test;

TEST_CASE_FIXTURE(OnMachine, "FileBackup: disk use is constant, and falls when blocks are freed" * on_machines) {
    const bool coded = !on_cuda() && either("compressed", "as it is"); // by the host's codec, to half the bytes
    const FileWatch watch{machine.driver};
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("cold", coded ? AnyPolicy{compressed(in_file())} : in_file());
    Filled kept{machine.driver, arena, 3_MiB + 1};
    std::optional<Filled<MachineDriver>> given_up{std::in_place, machine.driver, arena, 5_MiB};
    std::size_t full = 0;
    for (std::uint64_t cycle = 0; cycle < 4; ++cycle) {
        kept.write(cycle);
        given_up->write(cycle + 10);
        (void)saver.pause("cold");
        if (cycle == 0) full = watch.disk_bytes();
        CHECK(watch.disk_bytes() == full);
        (void)saver.resume("cold");
        CHECK((kept.whole() && given_up->whole()));
        if (cycle != 1) continue;
        given_up.reset(); // another block in its place: the same space
        given_up.emplace(machine.driver, arena, 5_MiB);
    }
    if (!coded) CHECK(full >= 8_MiB);
    CHECK(full <= 8_MiB + 64_KiB);
    (void)saver.pause("cold");
    given_up.reset(); // while paused: its space is freed by the next operation
    if (!coded) CHECK(row_of(saver, "cold").backed_up_bytes == 3_MiB + 256);
    (void)saver.resume("cold");
    CHECK(watch.disk_bytes() <= full - (coded ? 2_MiB : 5_MiB));
    CHECK(kept.whole());
    kept.reset(); // while active
    CHECK(row_of(saver, "cold").backed_up_bytes == 0);
    saver.prepare("cold");
    CHECK(watch.disk_bytes() <= (coded ? 2_MiB : 64_KiB)); // what the codec saved is still reserved
}

TEST_CASE_FIXTURE(OnHostSaver, "FileBackup: what other tags keep in host memory does not come into the file") {
    const bool coded = either("compressed", "as it is");
    const auto policy = [&](auto inside) { return coded ? AnyPolicy{compressed(inside)} : AnyPolicy{inside}; };
    const FileWatch watch{machine.driver};
    const Filled secret{machine.driver, saver.arena("secret", policy(pageable())), 9_MiB};
    pause_and_resume(saver, "secret"); // leaves its bytes in the buffers
    const Arena arena = saver.arena("cold", policy(in_file()));
    std::vector<Buffer<char>> blocks; // of zeros, which are zeros when they are compressed
    for (const std::size_t bytes : {std::size_t{256}, std::size_t{6912}, 1_MiB, std::size_t{100'000}}) {
        blocks.emplace_back(arena, bytes);
        write_bytes(machine.driver, blocks.back().data(), std::vector<unsigned char>(bytes));
    }
    saver.pause("cold");
    std::ifstream file{"/proc/self/fd/" + std::to_string(watch.descriptor()), std::ios::binary};
    const std::string kept{std::istreambuf_iterator<char>{file}, {}};
    CHECK(kept.size() > 4096);
    CHECK(kept.find_first_not_of('\0') == std::string::npos);
}

TEST_CASE("FileBackup: a full disk leaves the memory active and whole" * on_machines) {
    for (const Call call : {Call::open_file, Call::allocate_file, Call::write_file}) {
        for (const std::uint64_t nth : {std::uint64_t{1}, std::uint64_t{3}}) {
            if (nth != 1 && call != Call::write_file) continue;
            CAPTURE(call_name(call));
            const Checked machine;
            const FileWatch watch{machine.driver};
            MemorySaver saver{machine.driver};
            const Filled block{machine.driver, saver.arena("cold", in_file()), 6_MiB + 1};
            machine.driver.fail({.call = call, .nth = nth, .lasting = Lasting::onwards});
            const std::string text = text_of<DriverError>([&] { (void)saver.pause("cold"); });
            if (call != Call::write_file) CHECK(contains(text, directory()));
            CHECK(contains(text, "tag \"cold\", "));
            CHECK(row_of(saver, "cold").state == "active");
            CHECK(row_of(saver, "cold").backed_up_bytes == 0);
            CHECK(block.whole());
            machine.driver.heal();
            (void)saver.pause("cold");
            CHECK(watch.disk_bytes() <= 7_MiB); // no space was reserved twice
            (void)saver.resume("cold");
            CHECK(block.whole());
        }
    }
}

TEST_CASE_FIXTURE(OnHostSaver, "FileBackup: host memory for one buffer is enough") {
    const Call call = each_of({Call::map_host, Call::populate_host});
    const Filled block{machine.driver, saver.arena("cold", in_file()), 8_MiB};
    machine.driver.fail({.call = call, .nth = 2, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
    saver.prepare("cold");
    CHECK(machine.driver.pinned_bytes() == 2_MiB);
    pause_and_resume(saver, "cold");
    CHECK(block.whole());
    CHECK(machine.driver.pinned_bytes() == 2_MiB);
    machine.driver.heal();
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "disk space for a block that replaces a freed one is allocated again, before anything is written") {
    const Arena arena = saver.arena("cold", in_file());
    void* const freed = arena.allocate(4_MiB);
    saver.prepare("cold");
    arena.deallocate(freed, already_idle);
    const Filled block{machine.driver, arena, 4_MiB};
    machine.driver.fail({.call = Call::allocate_file});
    CHECK_THROWS_AS(saver.prepare("cold"), Error);
    saver.prepare("cold");
    const auto written = machine.driver.calls(Call::write_file);
    machine.driver.fail({.call = Call::allocate_file});
    CHECK_THROWS_AS((void)saver.pause("cold"), Error);
    CHECK(machine.driver.calls(Call::write_file) == written);
    pause_and_resume(saver, "cold");
    CHECK(block.whole());
}
} // namespace backup_file_backup_test
