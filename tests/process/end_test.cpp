// Processes that end during operations leave nothing behind and print nothing.
#include "support/machines.hpp"

namespace process_end_test {
using namespace test;
using process_test::Child;
using process_test::Ready;
using test::Folder;

/// Writes to a file never end: at the second write, it reports its progress.
struct EndlessWrites : DeviceAround {
    using DeviceAround::DeviceAround;
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept override {
        const Status status = DeviceAround::write_file(file, from, bytes, offset);
        if (++writes_ < 2) return status;
        process_test::stay();
    }

private:
    std::atomic<int> writes_{0};
};

struct OpenFile {
    std::string name; ///< as reported by the system
    std::uintmax_t bytes = 0;
};

/// Returns the files that a process has open in a folder.
std::vector<OpenFile> open_files(pid_t process, const std::filesystem::path& folder) {
    std::vector<OpenFile> files;
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/" + std::to_string(process) + "/fd"}) {
        std::error_code closed; // closed in the meantime
        const std::string name = std::filesystem::read_symlink(entry.path(), closed).string();
        if (closed || name.rfind(folder.string() + '/', 0) != 0) continue;
        files.push_back({name, std::filesystem::file_size(entry.path())});
    }
    return files;
}

TEST_CASE("killed in the middle of a file backup: nothing is left on disk") {
    const Folder folder;
    Ready child{[&] {
        const test::HostWith<EndlessWrites> driver{256_MiB};
        MemorySaver saver{driver};
        const Arena arena =
            saver.arena("weights", FileBackup{.directory = folder.path.string(), .threads = 1, .ring_bytes = 2_MiB});
        void* const block = arena.allocate(32_MiB);
        std::memset(block, 1, 32_MiB);
        (void)saver.pause();
    }};
    const auto files = open_files(child.pid(), folder.path); // it exists and has bytes, although it has no name
    REQUIRE(files.size() == 1);
    CHECK_MESSAGE(files[0].name.find("(deleted)") != std::string::npos, files[0].name);
    CHECK(files[0].bytes >= 2_MiB);
    CHECK(std::filesystem::is_empty(folder.path));
    child.kill(SIGKILL);
    CHECK(child.wait() == -SIGKILL);
    CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("exit with static objects is silent, paused or not, the device lost or not, and leaves no files") {
    const Folder folder;
    for (const bool paused : {true, false}) {
        for (const bool lost : {false, true}) {
            CAPTURE(paused);
            CAPTURE(lost);
            Child child{[&] {
                const HostDriver driver{256_MiB};
                static MemorySaver<HostDriver> saver{driver};
                const FileBackup in_file{.directory = folder.path.string(), .threads = 1, .ring_bytes = 2_MiB};
                static const Buffer<float> buffer{saver.arena("weights", in_file), 1000};
                (void)saver.arena("cache", HostBackup{.threads = 1}).allocate(1_MiB);
                if (paused) (void)saver.pause();
                if (lost) driver.lose();
                std::exit(3); // runs destructors of static objects
            }};
            CHECK(child.outcome() == "3");
            CHECK(std::filesystem::is_empty(folder.path));
        }
    }
}
} // namespace process_end_test
