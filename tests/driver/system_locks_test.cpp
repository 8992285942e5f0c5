#include "support/machines.hpp"

namespace driver_system_locks_test {
using namespace memsaver::detail;

struct Folder : test::Folder {
    const std::string path = test::Folder::path.string();
};

struct File {
    explicit File(const std::string& path) : descriptor{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)} {
        REQUIRE(descriptor >= 0);
    }
    ~File() { (void)::close(descriptor); }

    int descriptor;
};

TEST_CASE("system locks: a folder is this user's alone, or refused") {
    const Folder folder;
    const std::string inner = folder.path + "/inner";
    CHECK(SystemLocks::own_folder(inner.c_str()).ok()); // made
    CHECK(SystemLocks::own_folder(inner.c_str()).ok()); // there
    for (const mode_t wide : {0701U, 0710U, 0750U, 0777U}) {
        REQUIRE(::chmod(inner.c_str(), wide) == 0);
        CHECK(SystemLocks::own_folder(inner.c_str()).code == EPERM);
    }
    REQUIRE(::chmod(inner.c_str(), 0700) == 0);
    REQUIRE(::symlink(inner.c_str(), (folder.path + "/link").c_str()) == 0);
    CHECK(SystemLocks::own_folder((folder.path + "/link").c_str()).code == EPERM);
    const File file{folder.path + "/file"};
    CHECK(SystemLocks::own_folder((folder.path + "/file").c_str()).code == EPERM);
    CHECK(SystemLocks::own_folder((folder.path + "/no/such").c_str()).code == ENOENT);
    CHECK(SystemLocks::own_folder("/proc").code == EPERM);
}

TEST_CASE("system locks: a description's lock excludes others, and ends with its last descriptor") {
    const Folder folder;
    const File other{folder.path + "/file"};
    {
        const File one{folder.path + "/file"};
        REQUIRE(SystemLocks::lock(one.descriptor, F_WRLCK).ok());
        CHECK(SystemLocks::locked_by_another(other.descriptor));
        CHECK_FALSE(SystemLocks::locked_by_another(one.descriptor));
        CHECK(SystemLocks::lock(other.descriptor, F_WRLCK).code == EAGAIN);
        CHECK(SystemLocks::lock(other.descriptor, F_RDLCK).code == EAGAIN);
        const int copy = ::dup(one.descriptor);
        REQUIRE(SystemLocks::lock(one.descriptor, F_RDLCK).ok());
        CHECK(SystemLocks::lock(other.descriptor, F_RDLCK).ok());
        CHECK(SystemLocks::lock(other.descriptor, F_UNLCK).ok());
        (void)::close(copy); // not the last
        CHECK(SystemLocks::locked_by_another(other.descriptor));
    }
    CHECK_FALSE(SystemLocks::locked_by_another(other.descriptor));
    CHECK(SystemLocks::lock(other.descriptor, F_WRLCK, true).ok());
    CHECK_FALSE(SystemLocks::lock(-1, F_WRLCK).ok());
}

TEST_CASE("system locks: a file that was removed, or replaced, is not the one of its name") {
    const Folder folder;
    const int at = ::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const File file{folder.path + "/file"};
    CHECK(SystemLocks::is_named(file.descriptor, at, "file"));
    REQUIRE(::unlinkat(at, "file", 0) == 0);
    CHECK_FALSE(SystemLocks::is_named(file.descriptor, at, "file"));
    const File next{folder.path + "/file"};
    CHECK_FALSE(SystemLocks::is_named(file.descriptor, at, "file"));
    CHECK(SystemLocks::is_named(next.descriptor, at, "file"));
    (void)::close(at);
}
} // namespace driver_system_locks_test
