// Relative paths are those of the working directory in which they are given.
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"

namespace saver_relative_paths_test {
using namespace test;

namespace fs = std::filesystem;

/// Two directories of its own, and the working directory as it was before.
struct Directories {
    Directories() {
        for (const char* name : {"first", "second"}) fs::create_directory(path(name));
        go("first");
    }
    ~Directories() { fs::current_path(before); }
    void go(const char* name) const { fs::current_path(path(name)); }
    [[nodiscard]] fs::path path(const char* name) const { return root.path / name; }

    Folder root{};
    fs::path before = fs::current_path();
};

constexpr std::size_t bytes = 1_MiB;

void write_file(const fs::path& path, char fill) { std::ofstream{path, std::ios::binary} << std::string(bytes, fill); }

[[nodiscard]] bool all(const void* block, char fill) {
    const std::string wanted(bytes, fill);
    return std::memcmp(block, wanted.data(), bytes) == 0;
}

TEST_CASE("relative paths: a loaded file is found after the working directory has changed") {
    const std::string path = each_of<std::string>({"weights.bin", "./weights.bin", "../first/weights.bin"});
    const Directories in;
    write_file("weights.bin", 'x');
    const HostDriver driver{64_MiB};
    MemorySaver<> saver{AnyDriver{driver}};
    const Arena model = saver.arena("model", FileSource{.threads = 1});
    void* const block = model.allocate(bytes);
    path == "weights.bin" ? model.load(block, bytes, path) : saver.load(block, bytes, path);
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

TEST_CASE("relative paths: a file that a TaggedArena loaded is found after the working directory has changed") {
    const Directories in;
    write_file("weights.bin", 'x');
    TaggedArena<HostDriver, FileSource> arena{HostDriver{64_MiB}, "model", {.threads = 1}};
    void* const block = arena.allocate(bytes);
    arena.load(block, bytes, "weights.bin");
    in.go("second");
    pause_and_resume(arena);
    CHECK(all(block, 'x'));
}

TEST_CASE("relative paths: a file backup is in the directory that was meant when its policy was given") {
    for (const std::string way : {"a tag's policy", "the default policy", "a pause's policy", "a wrapped policy"}) {
        CAPTURE(way);
        const Directories in;
        fs::create_directory(in.path("first") / "backups");
        const FileBackup given{.directory = "backups", .threads = 1};
        MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}},
                            way == "the default policy" ? SaverOptions{.default_policy = given} : SaverOptions{}};
        if (way == "a tag's policy") (void)saver.arena("t", given);
        if (way == "a wrapped policy") (void)saver.arena("t", Verified<FileBackup>{given});
        PauseOptions options;
        if (way == "a pause's policy") options.bytes = given;
        in.go("second");
        (void)saver.arena("t").allocate(bytes);
        CHECK_NOTHROW((void)saver.pause(options));
        CHECK_NOTHROW((void)saver.resume());
    }
    const Directories in;
    fs::create_directory(in.path("first") / "backups");
    TaggedArena<HostDriver, FileBackup> arena{HostDriver{64_MiB}, "t", {.directory = "backups", .threads = 1}};
    (void)arena.allocate(bytes);
    in.go("second");
    CHECK_NOTHROW((void)arena.pause());
    CHECK_NOTHROW((void)arena.resume());
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
