// A context lost by a kernel that touches paused memory: DeviceLost is thrown, backups stay readable, and the end
// reports no error. Runs in its own process, because a lost context cannot be recovered.
#include "gpu/child.hpp"
#include "gpu/gpu_support.hpp"
#include "support/machines.hpp"

namespace gpu_lost_device_test {
using namespace gpu_test;

constexpr std::size_t bytes = 5_MiB + 6912;

bool reads(const BackupView& view, std::uint64_t seed) {
    const auto expected = test::pattern(bytes, seed);
    return view.size_bytes == bytes && std::memcmp(view.data(), expected.data(), bytes) == 0;
}

TEST_CASE("alone: a kernel touches paused memory" * doctest::skip()) {
    if (alone() == nullptr) return;
    std::vector<std::string> ignored;
    BackupView after_close;
    const Watched driver{CudaDriver{0}};
    {
        Program program;
        MemorySaver saver{driver, {.events = [&](const Event& event) {
                              if (event.kind == EventKind::ignored) ignored.push_back(event.text);
                          }}};
        const std::string folder = std::filesystem::temp_directory_path().string();
        void* const in_host = saver.arena("host", HostBackup{.threads = 2}).allocate(bytes);
        void* const in_file =
            saver.arena("file", FileBackup{.directory = folder, .threads = 2, .ring_bytes = 8_MiB}).allocate(bytes);
        const Buffer<std::uint32_t> active{saver.arena("active", HostBackup{.threads = 2}), 1 << 20};
        test::write_pattern(driver, in_host, bytes, 1);
        test::write_pattern(driver, in_file, bytes, 2);
        program.fill(active.data(), 0, active.size_bytes());
        saver.pause({"host", "file"});

        program.add_one(program.stream, in_host, 1000);
        const CUresult died = program.native.stream_synchronize(program.stream);
        CHECK(cuda_status_kind(static_cast<int>(died)) == StatusKind::gone);

        for (int again = 0; again < 2; ++again) {
            CAPTURE(again);
            CHECK_THROWS_AS(saver.resume(), DeviceLost);
            CHECK_THROWS_AS(saver.pause("active"), DeviceLost);
            CHECK_THROWS_AS(saver.pause("active", {.order = after(program.stream)}), DeviceLost);
            CHECK(reads(saver.backup_view(in_host, bytes), 1));
            CHECK(reads(saver.backup_view(in_file, bytes), 2));
            CHECK_NOTHROW(std::ignore = saver.usage());
            CHECK_NOTHROW(std::ignore = saver.bytes_to_resume());
        }
        after_close = saver.backup_view(in_host, bytes);
        CHECK_NOTHROW(saver.close());
        CHECK_NOTHROW(saver.close());
        CHECK_THROWS_AS(saver.resume(), Misuse);
    }
    CHECK(reads(after_close, 1)); // the view shares ownership of the bytes
    after_close = {};
    CHECK(driver.host_bytes() == 0);
    CHECK(driver.outstanding().files == 0);
    for (const std::string& text : ignored) FAIL_CHECK(text);
    std::puts("came to its end");
}

TEST_CASE("a lost context: DeviceLost, backups stay readable, closing is silent") {
    const Ended ended = run_alone("alone: a kernel touches paused memory");
    INFO(ended.out);
    CHECK(ended.code == 0);
    CHECK(ended.out.find("came to its end") != std::string::npos);
    CHECK_MESSAGE(ended.err.empty(), ended.err);
}
} // namespace gpu_lost_device_test
