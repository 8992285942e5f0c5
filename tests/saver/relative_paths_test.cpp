// Relative paths are those of the working directory in which they are given.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include "memsaver/backup/verified.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace saver_relative_paths_test {

using namespace test;

namespace fs = std::filesystem;

namespace {

/// Two directories of its own, and the working directory as it was before.
class Directories {
public:
    Directories() {
        std::string name = (fs::temp_directory_path() / "memsaver-paths-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        root_ = name;
        fs::create_directory(root_ / "first");
        fs::create_directory(root_ / "second");
        go("first");
    }
    Directories(const Directories&) = delete;
    Directories& operator=(const Directories&) = delete;
    ~Directories() {
        fs::current_path(before_);
        fs::remove_all(root_);
    }

    void go(const char* name) const { fs::current_path(root_ / name); }
    [[nodiscard]] fs::path path(const char* name) const { return root_ / name; }

private:
    fs::path before_ = fs::current_path();
    fs::path root_;
};

constexpr std::size_t bytes = 1_MiB;

void write_file(const fs::path& path, char fill) { std::ofstream{path, std::ios::binary} << std::string(bytes, fill); }

[[nodiscard]] bool all(const void* block, char fill) {
    const char* const first = static_cast<const char*>(block);
    for (std::size_t i = 0; i < bytes; ++i) {
        if (first[i] != fill) return false;
    }
    return true;
}

} // namespace

TEST_CASE("relative paths: a loaded file is found after the working directory has changed") {
    for (int way = 0; way < 3; ++way) {
        CAPTURE(way);
        const Directories in;
        write_file("weights.bin", 'x');
        const HostDriver driver{64_MiB};
        MemorySaver<> saver{AnyDriver{driver}};
        const Arena model = saver.arena("model", FileSource{.threads = 1});
        void* const block = model.allocate(bytes);
        if (way == 0) model.load(block, bytes, "weights.bin");
        if (way == 1) saver.load(block, bytes, "./weights.bin");
        if (way == 2) saver.load(block, bytes, "../first/weights.bin");
        CHECK(model.usage().backed_up_bytes == 0);
        in.go("second");
        write_file("weights.bin", 'y'); // another file of the same name
        (void)saver.pause();
        CHECK(model.usage().backed_up_bytes == 0); // the pause finds it unchanged too
        (void)saver.resume();
        CHECK(all(block, 'x'));
        (void)saver.pause();
        fs::remove(in.path("first") / "weights.bin");
        const std::string text = text_of<Error>([&] { (void)saver.resume(); });
        CHECK(contains(text, (fs::canonical(in.path("first")) / "").string().substr(0, 8)));
        CHECK(contains(text, "first"));
        write_file(in.path("first") / "weights.bin", 'x');
        saver.close();
    }
}

TEST_CASE("relative paths: a file that a TaggedArena loaded is found after the working directory has changed") {
    const Directories in;
    write_file("weights.bin", 'x');
    TaggedArena<HostDriver, FileSource> arena{HostDriver{64_MiB}, "model", {.threads = 1}};
    void* const block = arena.allocate(bytes);
    arena.load(block, bytes, "weights.bin");
    in.go("second");
    (void)arena.pause();
    (void)arena.resume();
    CHECK(all(block, 'x'));
}

TEST_CASE("relative paths: a file backup is in the directory that was meant when its policy was given") {
    const std::vector<std::pair<const char*, std::function<void(const Directories&)>>> ways{
        {"a tag's policy",
         [](const Directories& in) {
             MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
             (void)saver.arena("t", FileBackup{.directory = "backups", .threads = 1}).allocate(bytes);
             in.go("second");
             (void)saver.pause();
             (void)saver.resume();
         }},
        {"the default policy",
         [](const Directories& in) {
             MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}},
                                 {.default_policy = FileBackup{.directory = "backups", .threads = 1}}};
             in.go("second");
             (void)saver.arena("t").allocate(bytes);
             (void)saver.pause();
             (void)saver.resume();
         }},
        {"a pause's policy",
         [](const Directories& in) {
             MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
             (void)saver.arena("t").allocate(bytes);
             const PauseOptions options{.bytes = FileBackup{.directory = "backups", .threads = 1}};
             in.go("second");
             (void)saver.pause(options);
             (void)saver.resume();
         }},
        {"a wrapped policy",
         [](const Directories& in) {
             MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
             (void)saver.arena("t", Verified<FileBackup>{{.directory = "backups", .threads = 1}}).allocate(bytes);
             in.go("second");
             (void)saver.pause();
             (void)saver.resume();
         }},
        {"a TaggedArena's policy",
         [](const Directories& in) {
             TaggedArena<HostDriver, FileBackup> arena{HostDriver{64_MiB}, "t", {.directory = "backups", .threads = 1}};
             (void)arena.allocate(bytes);
             in.go("second");
             (void)arena.pause();
             (void)arena.resume();
         }},
    };
    for (const auto& [named, run] : ways) {
        const std::string name{named}; // clang captures no structured binding
        CAPTURE(name);
        const Directories in;
        fs::create_directory(in.path("first") / "backups");
        CHECK_NOTHROW(run(in));
    }
}

TEST_CASE("relative paths: two of the same text are two policies once the working directory has changed") {
    const Directories in;
    fs::create_directory(in.path("first") / "backups");
    fs::create_directory(in.path("second") / "backups");
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    const FileBackup policy{.directory = "backups", .threads = 1};
    const Arena first = saver.arena("t", policy);
    CHECK(saver.arena("t", policy) == first);
    in.go("second");
    CHECK_THROWS_AS((void)saver.arena("t", policy), Misuse);
    FileBackup same = policy;
    same.directory = fs::absolute("../first/backups").lexically_normal().string();
    CHECK_NOTHROW((void)saver.arena("t", same));
}

} // namespace saver_relative_paths_test
