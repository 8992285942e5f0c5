#include "support/machines.hpp"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/time.h>

namespace driver_system_files_test {
using namespace test;

constexpr std::size_t block = 4096;

struct Directory : test::Folder {
    const std::string name = path.string();
};

/// A buffer for direct I/O.
struct Bytes {
    explicit Bytes(std::size_t bytes_, unsigned char first = 1) : bytes{bytes_} {
        void* pages = nullptr;
        REQUIRE(SystemPages::map_host(bytes, pages).ok());
        data = static_cast<unsigned char*>(pages);
        for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(first + i / 7);
    }
    ~Bytes() { CHECK(SystemPages::unmap_host(data, bytes).ok()); }
    unsigned char* data = nullptr;
    std::size_t bytes;
};

FileRef open_in(const std::string& directory) {
    FileRef file;
    const Status status = SystemFiles::open_file(directory.c_str(), file);
    REQUIRE_MESSAGE(status.ok(), status.name);
    return file;
}

struct stat facts(FileRef file) {
    struct stat found = {};
    REQUIRE(::fstat(file.descriptor, &found) == 0);
    return found;
}

std::size_t disk_bytes(FileRef file) { return static_cast<std::size_t>(facts(file).st_blocks) * 512; }

void make_file(const std::string& path, const void* from, std::size_t bytes) {
    const int made = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(made >= 0);
    REQUIRE(::write(made, from, bytes) == static_cast<ssize_t>(bytes));
    REQUIRE(::close(made) == 0);
}

/// Runs `body(directory)` with a file system mounted that only this thread sees; returns false if that is not
/// permitted.
template <class Body>
bool with_mount(const char* type, const char* options, const Body& body) {
    const Directory at;
    bool mounted = false;
    // A separate thread, so that the mount ends with it.
    std::thread{[&] {
        if (::unshare(CLONE_NEWNS | CLONE_NEWIPC) != 0) return; // message queues belong to the latter
        if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
        if (::mount("memsaver-test", at.name.c_str(), type, 0, options) != 0) return;
        mounted = true;
        body(at.name);
        (void)::umount2(at.name.c_str(), MNT_DETACH);
    }}.join();
    if (!mounted) MESSAGE("not run: this process may not mount ", std::string{type});
    return mounted;
}

/// Opens a file in a directory, and checks that it is private there.
FileRef open_privately(const std::string& directory) {
    const FileRef file = open_in(directory);
    CHECK(std::filesystem::is_empty(directory));
    CHECK(facts(file).st_nlink == 0);
    CHECK((facts(file).st_mode & 07777U) == 0600U);
    CHECK((::fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    return file;
}

TEST_CASE("a small text is read as a whole, however little a read returns") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "max ", 4) == 4);
    std::thread writer{[&] {
        for (int unread = 4; unread != 0; std::this_thread::yield()) REQUIRE(::ioctl(ends[0], FIONREAD, &unread) == 0);
        REQUIRE(::write(ends[1], "100\n", 4) == 4);
        (void)::close(ends[1]);
    }};
    const detail::SystemText text{"/proc/self/fd/%d", ends[0]};
    writer.join();
    CHECK(text.text() == "max 100\n");
    CHECK(text.number("max", 0) == 100);
    (void)::close(ends[0]);
}

TEST_CASE("a file is private: no name, mode 0600, closed on exec") {
    const Directory directory;
    const FileRef file = open_privately(directory.name);
    CHECK(((::fcntl(file.descriptor, F_GETFL) & O_DIRECT) != 0) == file.direct);
    const std::string link = "/proc/self/fd/" + std::to_string(file.descriptor);
    const std::string name = directory.name + "/back";
    CHECK(::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0); // and it cannot get a name
    CHECK(SystemFiles::close_file(file).ok());
    CHECK(::fcntl(file.descriptor, F_GETFD) == -1);
    const FileRef closed;
    char byte = 0;
    CHECK(SystemFiles::close_file(closed).code == EBADF);
    CHECK(SystemFiles::write_file(closed, &byte, 1, 0).code == EBADF);
    CHECK(SystemFiles::read_file(closed, &byte, 1, 0).code == EBADF);
    CHECK(SystemFiles::allocate_file(closed, 0, block).code == EBADF);
    CHECK(SystemFiles::punch_file(closed, 0, block).code == EBADF);
}

TEST_CASE("bytes are read as they were written, at any offset") {
    const Directory directory;
    const FileRef file = open_in(directory.name);
    const Bytes written{1_MiB};
    const Bytes read{1_MiB, 99};
    REQUIRE(SystemFiles::write_file(file, written.data, 1_MiB, 3 * block).ok());
    REQUIRE(SystemFiles::read_file(file, read.data, 1_MiB, 3 * block).ok());
    CHECK(std::memcmp(written.data, read.data, 1_MiB) == 0);
    REQUIRE(SystemFiles::read_file(file, read.data, block, 5 * block).ok());
    CHECK(std::memcmp(written.data + 2 * block, read.data, block) == 0);
    REQUIRE(SystemFiles::read_file(file, read.data, block, 0).ok());
    CHECK(std::count(read.data, read.data + block, 0) == block); // never written
    CHECK(SystemFiles::write_file(file, written.data, 0, 0).ok());
    CHECK(SystemFiles::read_file(file, read.data, 0, 1_GiB).ok());

    // Reading beyond the end is an error, not a short read.
    CHECK(SystemFiles::read_file(file, read.data, block, 3 * block + 1_MiB).code == EIO);
    CHECK(SystemFiles::read_file(file, read.data, 2 * block, 2 * block + 1_MiB).code == EIO);
    CHECK(SystemFiles::close_file(file).ok());
}

TEST_CASE("disk space is allocated before anything is written, and freed") {
    const Directory directory;
    const FileRef file = open_in(directory.name);
    const Bytes bytes{1_MiB};
    REQUIRE(SystemFiles::allocate_file(file, 0, 4_MiB).ok());
    CHECK(disk_bytes(file) >= 4_MiB);
    REQUIRE(SystemFiles::write_file(file, bytes.data, 1_MiB, 1_MiB).ok());
    REQUIRE(SystemFiles::write_file(file, bytes.data, 1_MiB, 2_MiB).ok());
    CHECK(SystemFiles::punch_file(file, 1_MiB, 1_MiB).ok());
    CHECK(disk_bytes(file) < 4_MiB);
    CHECK(facts(file).st_size == off_t{4_MiB}); // the bytes after it keep their position
    const Bytes read{1_MiB, 99};
    REQUIRE(SystemFiles::read_file(file, read.data, 1_MiB, 2_MiB).ok());
    CHECK(std::memcmp(read.data, bytes.data, 1_MiB) == 0);
    REQUIRE(SystemFiles::read_file(file, read.data, 1_MiB, 1_MiB).ok());
    CHECK(std::count(read.data, read.data + 1_MiB, 0) == 1_MiB);
    CHECK(SystemFiles::punch_file(file, 0, 4_MiB).ok());
    CHECK(disk_bytes(file) == 0);
    CHECK(SystemFiles::close_file(file).ok());
}

TEST_CASE("a directory that cannot be used") {
    FileRef file{77, true};
    const Directory directory;
    const std::string nowhere = directory.name + "/nowhere";
    CHECK(SystemFiles::open_file(nowhere.c_str(), file).code == ENOENT);
    CHECK(SystemFiles::may_write_in(nowhere.c_str()).code == ENOENT);
    CHECK(SystemFiles::may_write_in("/etc/passwd").code == ENOTDIR);
    CHECK(SystemFiles::may_write_in(directory.name.c_str()).ok());
    const std::string long_name(5000, 'x');
    CHECK(SystemFiles::open_file(long_name.c_str(), file).code == ENAMETOOLONG);
    const std::string no_directory = directory.name + "/file";
    make_file(no_directory, "", 0);
    CHECK(SystemFiles::open_file(no_directory.c_str(), file).code == ENOTDIR);
    CHECK(file == FileRef{77, true});
}

TEST_CASE("disk space is allocated also while signals arrive all the time") {
    const FileRef file = open_in("/dev/shm"); // a tmpfs, which reacts to signals
    struct sigaction counted {};
    struct sigaction usual {};
    counted.sa_handler = [](int) {};
    REQUIRE(::sigaction(SIGALRM, &counted, &usual) == 0);
    const itimerval often{{0, 500}, {0, 500}};
    const itimerval never{};
    REQUIRE(::setitimer(ITIMER_REAL, &often, nullptr) == 0);
    const Status status = SystemFiles::allocate_file(file, block, 48 << 20);
    REQUIRE(::setitimer(ITIMER_REAL, &never, nullptr) == 0);
    REQUIRE(::sigaction(SIGALRM, &usual, nullptr) == 0);
    CHECK(status.ok());
    CHECK(facts(file).st_size == (48 << 20) + static_cast<off_t>(block));
    CHECK(disk_bytes(file) >= 48 << 20);
    CHECK(SystemFiles::close_file(file).ok());
}

TEST_CASE("a full disk is an error, of allocating and of writing") {
    with_mount("tmpfs", "size=1m", [](const std::string& directory) {
        const FileRef file = open_in(directory);
        const Bytes bytes{2_MiB};
        const Status full = SystemFiles::allocate_file(file, 0, 2_MiB);
        CHECK(full.kind == StatusKind::other);
        CHECK(full.code == ENOSPC);
        CHECK(std::string{full.name} == "ENOSPC");
        CHECK(SystemFiles::allocate_file(file, 0, 512_KiB).ok());
        CHECK(SystemFiles::write_file(file, bytes.data, 2_MiB, 0).code == ENOSPC);
        CHECK(SystemFiles::write_file(file, bytes.data, block, 0).ok()); // a write that fits still works
        CHECK(SystemFiles::punch_file(file, 0, 2_MiB).ok());
        CHECK(SystemFiles::write_file(file, bytes.data, 1_MiB, 0).ok());
        CHECK(SystemFiles::close_file(file).ok());
    });
}

TEST_CASE("a file that may not grow is an error, also in the middle of a write") {
    const Directory directory;
    const FileRef file = open_in(directory.name);
    const Bytes bytes{4 * block};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    {
        const process_test::Limit limit{RLIMIT_FSIZE, 2 * block};
        CHECK(SystemFiles::write_file(file, bytes.data, 4 * block, 0).code == EFBIG);
        CHECK(SystemFiles::allocate_file(file, 0, 4 * block).code == EFBIG);
        CHECK(SystemFiles::write_file(file, bytes.data, 2 * block, 0).ok());
    }
    (void)std::signal(SIGXFSZ, handler);
    CHECK(SystemFiles::write_file(file, bytes.data, 4 * block, 0).ok());
    CHECK(SystemFiles::close_file(file).ok());
}

TEST_CASE("where a file must have a name, the name is removed at once") {
    // POSIX message queues are files in a file system that supports neither unnamed files nor direct I/O: the created
    // file is detected there before it is rejected.
    with_mount("mqueue", nullptr, [](const std::string& directory) {
        REQUIRE(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) == -1);
        const FileRef file = open_privately(directory);
        CHECK_FALSE(file.direct);
        CHECK(SystemFiles::close_file(file).ok());
    });
}

TEST_CASE("a file system that cannot allocate or free space in advance returns ok") {
    with_mount("ramfs", nullptr, [](const std::string& directory) {
        const FileRef file = open_in(directory);
        CHECK(::fallocate(file.descriptor, 0, 0, off_t{block}) == -1);
        CHECK(SystemFiles::allocate_file(file, 0, block).ok());
        CHECK(SystemFiles::punch_file(file, 0, block).ok());
        const Bytes written{2 * block};
        const Bytes read{2 * block, 99};
        CHECK(SystemFiles::write_file(file, written.data, 2 * block, 0).ok());
        CHECK(SystemFiles::read_file(file, read.data, 2 * block, 0).ok());
        CHECK(std::memcmp(written.data, read.data, 2 * block) == 0);
        CHECK(SystemFiles::close_file(file).ok());
    });
}

TEST_CASE("a file of the program's is opened by its name, read, and known again") {
    const Directory directory;
    const std::string path = directory.name + "/model";
    const Bytes written{8 * block};
    make_file(path, written.data, 5 * block + 7);
    FileRef file;
    REQUIRE(SystemFiles::open_source(path.c_str(), false, file).ok());
    CHECK_FALSE(file.direct);
    CHECK((::fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    FileFacts first;
    REQUIRE(SystemFiles::file_facts(file, first).ok());
    CHECK(first.bytes == 5 * block + 7);
    bool yes = false;
    CHECK(SystemFiles::file_cached(file, 5 * block, 0, yes).ok());
    CHECK(yes); // it has just been written
    yes = false;
    CHECK(SystemFiles::sample_cached(file, 5 * block, 0, yes).ok());
    CHECK(yes);
    if (SystemFiles::count_cached(file, 5 * block, 0, yes).kind != StatusKind::unsupported) { // as before Linux 6.5
        CHECK(yes);
        CHECK(SystemFiles::count_cached(file, 0, 0, yes).ok());
        CHECK(yes);
        CHECK(SystemFiles::count_cached(file, 64 * block, 0, yes).ok());
        CHECK_FALSE(yes); // most of it does not exist
    }
    const Bytes read{8 * block, 99};
    CHECK(SystemFiles::read_file(file, read.data, 5 * block + 6, 1).ok());
    CHECK(std::memcmp(read.data, written.data + 1, 5 * block + 6) == 0);
    CHECK(SystemFiles::read_file(file, read.data, 8, 5 * block).code == EIO); // the file ends before
    FileRef direct;
    if (SystemFiles::open_source(path.c_str(), true, direct).ok()) { // the file system may not support it
        CHECK(direct.direct);
        CHECK(SystemFiles::read_file(direct, read.data, 4 * block, block).ok());
        CHECK(std::memcmp(read.data, written.data + block, 4 * block) == 0);
        CHECK(SystemFiles::close_file(direct).ok());
    }
    FileFacts again;
    REQUIRE(SystemFiles::file_facts(file, again).ok());
    CHECK(again == first);
    REQUIRE(::truncate(path.c_str(), block) == 0);
    REQUIRE(SystemFiles::file_facts(file, again).ok());
    CHECK(again != first);
    CHECK(SystemFiles::close_file(file).ok());
    CHECK(SystemFiles::file_facts(file, again).code == EBADF);
    CHECK(SystemFiles::file_cached(file, 1, 0, yes).code == EBADF);
    CHECK(SystemFiles::sample_cached(file, 1, 0, yes).code == EBADF);
}

TEST_CASE("files that are opened where standard input is closed are not standard input") {
    const Directory directory;
    const std::string path = directory.name + "/model";
    make_file(path, "bytes", 5);
    const int input = ::dup(0); // none, if it is closed already
    (void)::close(0);
    FileRef source;
    const Status read = SystemFiles::open_source(path.c_str(), false, source);
    const Status read_closed = SystemFiles::close_file(source);
    FileRef backup;
    const Status write = SystemFiles::open_file(directory.name.c_str(), backup);
    const Status write_closed = SystemFiles::close_file(backup);
    const bool none = ::fcntl(0, F_GETFD) < 0;
    if (input >= 0) {
        (void)::dup2(input, 0);
        (void)::close(input);
    }
    CHECK(read.ok());
    CHECK(source.descriptor > 2);
    CHECK(read_closed.ok());
    CHECK(write.ok());
    CHECK(backup.descriptor > 2);
    CHECK(write_closed.ok());
    CHECK(none);
}

TEST_CASE("only regular files are opened") {
    const Directory directory;
    const std::string pipe = directory.name + "/pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    FileRef file{77, true};
    CHECK(SystemFiles::open_source("/nowhere/at/all", false, file).code == ENOENT);
    CHECK(SystemFiles::open_source("", false, file).code == ENOENT);
    CHECK(SystemFiles::open_source(directory.name.c_str(), false, file).code == EISDIR);
    CHECK(SystemFiles::open_source("/dev/zero", false, file).code == EINVAL);
    CHECK(SystemFiles::open_source(pipe.c_str(), false, file).code == EINVAL); // and does not wait for a writer
    CHECK(file == FileRef{77, true});
}
} // namespace driver_system_files_test
