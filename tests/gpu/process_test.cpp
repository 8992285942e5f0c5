// Processes that end with memory paused on a GPU, and processes forked from one that uses a GPU.
#include "gpu/child.hpp"
#include "gpu/gpu_support.hpp"
#include "process/process_support.hpp"
#include "support/machines.hpp"

namespace gpu_process_test {
using namespace gpu_test;

/// Lives until the end of the process: constructed before the driver was loaded, destroyed after it.
struct OfTheProgram {
    std::optional<MemorySaver<CudaDriver>> saver;
    std::optional<Buffer<float>> buffer;
};
OfTheProgram of_the_program; // NOLINT(cert-err58-cpp): that it is a static is the point

/// Allocates memory with bytes backed up on the host, in a file, and not at all, and pauses all of it.
Buffer<float> pause_some(MemorySaver<CudaDriver>& saver, const std::string& folder) {
    Buffer<float> buffer{saver.arena("host", HostBackup{.threads = 2}), 1 << 20};
    (void)saver.arena("file", FileBackup{.directory = folder, .threads = 1, .ring_bytes = 4_MiB}).allocate(1_MiB);
    (void)saver.arena("cache").allocate(64_MiB);
    saver.pause();
    (void)saver.arena("cache").allocate(1_MiB); // some is active
    return buffer;
}

TEST_CASE("alone: exit with a static saver that was made in main" * doctest::skip()) {
    const char* const folder = alone();
    if (folder == nullptr) return;
    static MemorySaver saver{CudaDriver{0}};
    static const Buffer<float> buffer = pause_some(saver, folder);
    std::exit(3); // NOLINT(concurrency-mt-unsafe): destructors of statics run
}

TEST_CASE("alone: exit with a static saver that is older than the driver" * doctest::skip()) {
    const char* const folder = alone();
    if (folder == nullptr) return;
    of_the_program.saver.emplace(CudaDriver{0});
    of_the_program.buffer.emplace(pause_some(*of_the_program.saver, folder));
    std::exit(3); // NOLINT(concurrency-mt-unsafe)
}

TEST_CASE("exit with paused memory is silent, whether the driver ends before the saver or after") {
    for (const char* name : {"alone: exit with a static saver that was made in main",
                             "alone: exit with a static saver that is older than the driver"}) {
        CAPTURE(name);
        const test::Folder folder;
        const Ended ended = run_alone(name, folder.path.string());
        INFO(ended.out);
        CHECK(ended.code == 3);
        CHECK_MESSAGE(ended.err.empty(), ended.err);
        CHECK(std::filesystem::is_empty(folder.path));
    }
}

/// All calls: process/fork_test.cpp.
TEST_CASE_FIXTURE(OnGpu, "fork: calls of the child are refused, and the parent is unharmed") {
    constexpr std::size_t bytes = 4_MiB + 4_KiB;
    MemorySaver saver{books.driver};
    const std::string folder = std::filesystem::temp_directory_path().string();
    const Arena weights = saver.arena("weights", HostBackup{.threads = 2});
    const Arena files = saver.arena("files", FileBackup{.directory = folder, .threads = 2, .ring_bytes = 8_MiB});
    const Arena active = saver.arena("active", HostBackup{.threads = 2});
    std::vector<void*> blocks;
    for (const Arena* arena : {&weights, &files, &active}) {
        blocks.push_back(arena->allocate(bytes));
        test::write_pattern(books.driver, blocks.back(), bytes, blocks.size());
    }
    saver.pause({"weights", "files"});
    saver.prepare("active"); // pinned pages that the child must not inherit
    {
        process_test::Child child{[&] {
            (void)::alarm(60);
            int wrong = 0;
            const auto expect = [&](const std::function<void()>& use) { wrong += process_test::refused(use) ? 0 : 1; };
            expect([&] { saver.resume(); });
            expect([&] { saver.pause(); });
            expect([&] { (void)active.allocate(1); });
            for (void* const block : blocks) expect([&] { saver.deallocate(block); });
            expect([&] { saver.close(); });
            return wrong;
        }};
        const std::string said = child.rest();
        CHECK_MESSAGE(said.empty(), said);
        CHECK(child.wait() == 0);
    }
    // Backups are restored, and pages pinned before the fork can still be copied to and from the device.
    saver.resume();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        CHECK(test::has_pattern(books.driver, blocks[i], bytes, i + 1));
        test::write_pattern(books.driver, blocks[i], bytes, 10 + i);
    }
    saver.pause();
    CHECK(books.driver.handle_bytes() == 0);
    saver.resume();
    for (std::size_t i = 0; i < blocks.size(); ++i) CHECK(test::has_pattern(books.driver, blocks[i], bytes, 10 + i));
    program.add_one(program.stream, blocks[0], 1000);
    program.synchronize(); // the context is valid
}
} // namespace gpu_process_test
