// Bytes that differ from the saved ones are not restored; once they are correct again, they are.
#include "backup/backup_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"

namespace backup_verified_test {
using namespace test;

/// Flips a bit of one kept byte, wherever it is; a second call restores it.
template <class D>
struct Corruption {
    Corruption(MemorySaver<FaultyDriver<D>>& saver, const FileWatch<D>& watch) : saver_{saver}, watch_{watch} {}

    void turn(const void* at, bool in_file) {
        const BackupView view = saver_.backup_view(at, 1);
        if (!in_file) {
            auto* const byte = const_cast<std::byte*>(view.data()); // NOLINT: corrupting is the point
            *byte ^= std::byte{0x40};
            return;
        }
        // The file may be opened for direct access: go through the page cache by a name under /proc.
        const std::string name = "/proc/self/fd/" + std::to_string(watch_.descriptor());
        const int file = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
        REQUIRE(file >= 0);
        std::vector<unsigned char> all(static_cast<std::size_t>(::lseek(file, 0, SEEK_END)));
        REQUIRE(::pread(file, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
        // Where the block begins, whether its first byte is correct or not.
        const auto second = std::search(all.begin(), all.end(), expected.begin() + 1, expected.end());
        REQUIRE(second != all.end());
        const unsigned char first = *(second - 1) ^ 0x40U;
        REQUIRE(::pwrite(file, &first, 1, second - 1 - all.begin()) == 1);
        REQUIRE(::fsync(file) == 0);
        REQUIRE(::close(file) == 0);
    }
    std::vector<unsigned char> expected; // the first bytes of the block to find

private:
    MemorySaver<FaultyDriver<D>>& saver_;
    const FileWatch<D>& watch_;
};

TEST_CASE("Verified: refuses bytes that differ, and resumes once they are right" * on_machines) {
    for (const auto& keeper : keepers()) {
        const std::string which = keeper.name;
        if (which.find("verified") == std::string::npos) continue;
        if (which.find("compressed") != std::string::npos) continue; // see compressed_test.cpp
        CAPTURE(keeper.name);
        const bool in_file = which.find("file") != std::string::npos;
        const Checked machine;
        const FileWatch watch{machine.driver};
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("weights", keeper.policy);
        const Filled small{machine.driver, arena, 6912, 1};
        Filled large{machine.driver, arena, 2_MiB + 1, 2};
        const Filled other{machine.driver, saver.arena("other", HostBackup{.threads = 2}), 1_MiB, 3};
        (void)saver.pause();
        Corruption corruption{saver, watch};
        for (const auto* const block : {&small, &std::as_const(large)}) {
            corruption.expected = pattern(100, block->seed);
            corruption.turn(block->data(), in_file);
            const std::string text = text_of<BackupDamaged>([&] { (void)saver.resume("weights"); });
            CHECK((contains(text, "differs from the saved bytes") && contains(text, "tag \"weights\"")));
            CHECK(row_of(saver, "weights").state == "paused");
            const auto damaged = thrown<BackupDamaged>([&] { (void)saver.resume({"other", "weights"}); });
            CHECK(damaged.tag() == "weights");
            CHECK(row_of(saver, "weights").state == "paused");
            corruption.turn(block->data(), in_file);
        }
        CHECK(row_of(saver, "other").state == "active"); // it was resumed before
        CHECK(other.whole());
        (void)saver.resume("weights");
        CHECK((small.whole() && large.whole()));
        large.write(4); // new bytes have new checksums
        pause_and_resume(saver, "weights");
        CHECK(large.whole());
    }
}

TEST_CASE_FIXTURE(OnHost, "Verified: a write that failed does not hide damage to bytes saved later") {
    const bool retain = either("retained", "given back");
    FileBackup file = test::in_file();
    file.retain = retain;
    const FileWatch watch{machine.driver};
    MemorySaver saver{machine.driver};
    const Filled block{machine.driver, saver.arena("tag", Verified<FileBackup>{file}), 2_MiB};
    saver.pause();
    const unsigned char one = 5;
    machine.driver.fail({.call = Call::write_file});
    CHECK_THROWS_AS(saver.write_backup(block.data() + 5000, &one, 1), Error);
    saver.resume();
    saver.pause();
    Corruption corruption{saver, watch};
    corruption.expected = pattern(100, 1);
    corruption.turn(block.data(), true);
    CHECK_THROWS_AS(saver.write_backup(block.data() + 5000, &one, 1), BackupDamaged);
    CHECK_THROWS_AS(saver.resume(), BackupDamaged);
    corruption.turn(block.data(), true);
    saver.resume();
    CHECK(block.whole());
}

/// Verified<> with a count of its checksums.
template <class P>
struct Counted {
    P policy{};
    std::shared_ptr<ChecksumObserver> sums = std::make_shared<ChecksumObserver>();

    [[nodiscard]] std::string_view name() const noexcept { return "counted"; }
    [[nodiscard]] auto open(const AnyDriver& driver) const { return policy.open(driver, sums); }
    friend bool operator==(const Counted&, const Counted&) = default;
};

/// Allocates and frees many blocks; the bytes of the live ones are restored. Returns the largest number of checksums.
template <class P>
std::size_t most_checksums(const Counted<P>& policy, int cycles) {
    const Checked machine;
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("weights", policy);
    std::vector<Filled<MachineDriver>> blocks;
    std::uint64_t seed = 0;
    std::size_t most = 0;
    for (int cycle = 0; cycle < cycles; ++cycle) {
        while (blocks.size() < 12) {
            const std::size_t bytes = 1000 + (seed * 7919) % 60'000;
            blocks.emplace_back(machine.driver, arena, bytes, ++seed);
        }
        (void)saver.pause("weights");
        most = std::max(most, policy.sums->checksums());
        for (int freed = 0; freed < 3; ++freed) { // the others are older than these, and some of them old
            const std::size_t which = (seed + static_cast<std::size_t>(freed) * 5) % blocks.size();
            blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
        }
        (void)saver.resume("weights");
    }
    for (const auto& block : blocks) CHECK(block.whole());
    if (!policy.policy.retain) CHECK(policy.sums->checksums() == 0);
    saver.close();
    CHECK(policy.sums->checksums() == 0);
    return most;
}

TEST_CASE("Verified: checksums are dropped with their bytes") {
    HostBackup given_back{.retain = false, .threads = 1};
    const int cycles = 40; // 120 blocks; each has at most one piece on each side of two boundaries
    CHECK(most_checksums(Counted<HostBackup>{{.threads = 1}}, cycles) <= 36);
    CHECK(most_checksums(Counted<HostBackup>{given_back}, cycles) <= 36);
    CHECK(most_checksums(Counted<HostBackup>{pageable({.threads = 1})}, cycles) <= 36);
    CHECK(most_checksums(Counted<FileBackup>{in_file({.threads = 1})}, cycles) <= 36);
}
} // namespace backup_verified_test
