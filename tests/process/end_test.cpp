// Processes that end during operations leave nothing behind and print nothing.
#include "support/machines.hpp"

namespace process_end_test {
using namespace test;
using process_test::Child;
using process_test::Ready;
using test::Folder;

TEST_CASE("killed in the middle of a file backup: nothing is left on disk") {
    const Folder folder;
    Ready child{[&] {
        const FaultyDriver<HostDriver> driver{HostDriver{256_MiB}};
        std::atomic<int> writes{0};
        driver.on_call([&](const CallRecord& made) { // the third write never begins
            if (made.call == Call::write_file && ++writes == 3) process_test::stay();
        });
        MemorySaver saver{driver};
        const Arena arena =
            saver.arena("weights", FileBackup{.directory = folder.path.string(), .threads = 1, .ring_bytes = 2_MiB});
        void* const block = arena.allocate(32_MiB);
        std::memset(block, 1, 32_MiB);
        (void)saver.pause();
    }};
    auto files = process_test::descriptors(child.pid()); // it exists and has bytes, although it has no name
    std::erase_if(files, [&](const auto& each) { return !each.second.starts_with(folder.path.string() + '/'); });
    REQUIRE(files.size() == 1);
    CHECK_MESSAGE(contains(files.begin()->second, "(deleted)"), files.begin()->second);
    const std::string link = "/proc/" + std::to_string(child.pid()) + "/fd/" + std::to_string(files.begin()->first);
    CHECK(std::filesystem::file_size(link) >= 2_MiB);
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
