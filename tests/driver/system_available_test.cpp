#include "support/machines.hpp"

namespace driver_system_available_test {
using namespace test;

/// The system's files, simulated by a test.
struct FakeSystem {
    void write(const std::string& file, const std::string& text) const {
        const std::filesystem::path path = root_ + file;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream{path} << text;
    }
    /// A cgroup of version 2. `droppable`: inactive pages of files; `more`: further lines of memory.stat.
    void group(const std::string& path, const std::string& limit, std::size_t used, std::size_t droppable = 0,
               const std::string& more = "") const {
        const std::string folder = "/sys/fs/cgroup" + path;
        write(folder + "/memory.max", limit + "\n");
        write(folder + "/memory.current", std::to_string(used) + "\n");
        write(folder + "/memory.stat",
              "anon 5\nactive_inactive_file 7\ninactive_file " + std::to_string(droppable) + "\n" + more);
    }
    /// A cgroup of version 1.
    void old_group(const std::string& path, std::size_t limit, std::size_t used, std::size_t droppable = 0,
                   const std::string& more = "") const {
        const std::string folder = "/sys/fs/cgroup/memory" + path;
        write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
        write(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
        write(folder + "/memory.stat",
              "inactive_file 9\ntotal_inactive_file " + std::to_string(droppable) + "\n" + more);
    }
    std::size_t bytes() const { return SystemAvailable::bytes(root_.c_str()); }

private:
    test::Folder folder_{};
    const std::string root_ = folder_.path.string();
};

TEST_CASE("what the system has available") {
    const FakeSystem system;
    CHECK(system.bytes() == SystemAvailable::unlimited); // no information
    system.write("/proc/meminfo", "MemTotal:       49368224 kB\nMemFree:        100 kB\nMemAvailable:   1024 kB\n");
    CHECK(system.bytes() == 1_MiB);
    system.write("/proc/meminfo", "MemTotal:       49368224 kB\nMemFree:        100 kB\n");
    CHECK(system.bytes() == SystemAvailable::unlimited);
}

TEST_CASE("a control group of version 2 limits, and so do those above it") {
    const FakeSystem system;
    system.write("/proc/meminfo", "MemAvailable: 1024 kB\n");
    system.write("/proc/self/cgroup", "0::/outer/inner\n");
    system.group("/outer/inner", "1000000", 300000);
    CHECK(system.bytes() == 700000);
    system.group("/outer/inner", "1000000", 300000, 100000);
    CHECK(system.bytes() == 800000); // files that can be dropped
    system.group("/outer", "500000", 400000);
    CHECK(system.bytes() == 100000);
    system.group("/outer", "max", 400000);
    CHECK(system.bytes() == 800000);
    system.group("/outer", "500000", 600000);
    CHECK(system.bytes() == 0); // over its limit
    system.group("/outer", "500000", 400000, 900000);
    CHECK(system.bytes() == 500000); // never more than the limit
    system.group("", "200000", 0);
    CHECK(system.bytes() == 200000);
    system.group("/other", "5", 0);
    CHECK(system.bytes() == 200000);
}

TEST_CASE("a control group of version 1 limits, and so do those above it") {
    const FakeSystem system;
    system.write("/proc/self/cgroup", "9:name=systemd:/memory\n5:cpu,memory:/outer/inner\n2:cpuset,cpu:/cpus\n0::/\n");
    constexpr std::size_t no_limit = 9223372036854771712U;
    system.old_group("/outer/inner", 1000000, 300000);
    CHECK(system.bytes() == 700000);
    system.old_group("/outer/inner", 1000000, 300000, 100000);
    CHECK(system.bytes() == 800000);
    system.old_group("/outer", 500000, 400000);
    CHECK(system.bytes() == 100000);
    system.old_group("/outer", no_limit, 400000);
    system.old_group("", no_limit, 400000);
    CHECK(system.bytes() == 800000);
    system.old_group("/cpus", 5, 0);
    CHECK(system.bytes() == 800000);
}

TEST_CASE("pages of files, also if read often, can be dropped; shared memory and what is not written cannot") {
    const FakeSystem system;
    SUBCASE("version 2") {
        const auto has = [&](const std::string& more, std::size_t inactive = 0) {
            system.write("/proc/self/cgroup", "0::/group\n");
            system.group("/group", "1000000", 900000, inactive, more);
            return system.bytes();
        };
        CHECK(has("active_file 600000\n") == 700000);
        CHECK(has("active_file 300000\n", 200000) == 600000);
        CHECK(has("shmem 600000\nfile 800000\ninactive_anon 300000\nactive_anon 300000\n") == 100000);
        CHECK(has("active_file 600000\nfile_dirty 50000\nfile_writeback 70000\n") == 580000);
        CHECK(has("active_file 600000\nfile_dirty 500000\nfile_writeback 700000\n") == 100000);
        CHECK(has("active_file 2000000\n") == 1000000);
        CHECK(has("workingset_activate_file 5\nunevictable 600000\n") == 100000);
    }
    SUBCASE("version 1") {
        const auto has = [&](const std::string& more, std::size_t inactive = 0) {
            system.write("/proc/self/cgroup", "5:memory:/group\n");
            system.old_group("/group", 1000000, 900000, inactive, more);
            return system.bytes();
        };
        CHECK(has("active_file 5\ntotal_active_file 600000\n") == 700000);
        CHECK(has("total_active_file 300000\n", 200000) == 600000);
        CHECK(has("total_cache 800000\ntotal_shmem 600000\ntotal_active_anon 600000\n") == 100000);
        CHECK(has("total_active_file 600000\ntotal_dirty 50000\ntotal_writeback 70000\n") == 580000);
    }
}

TEST_CASE("in a container the path may be the host's, and the mount is the container's own group") {
    const FakeSystem system;
    SUBCASE("version 1") {
        system.write("/proc/self/cgroup", "4:memory:/docker/0123456789abcdef\n");
        system.old_group("", 1000000, 300000);
    }
    SUBCASE("version 2") {
        system.write("/proc/self/cgroup", "0::/docker/0123456789abcdef\n");
        system.group("", "1000000", 300000);
    }
    SUBCASE("version 2, in a namespace of its own") {
        system.write("/proc/self/cgroup", "0::/\n");
        system.group("", "1000000", 300000);
    }
    SUBCASE("no list of groups at all") { system.group("", "1000000", 300000); }
    CHECK(system.bytes() == 700000);
}

TEST_CASE("files that make no sense do not limit") {
    const FakeSystem system;
    for (const char* text : {"", "\n", ":", "0:", "0::", "nothing\n\n::\n", "4:memory", "4:memory:"}) {
        CAPTURE(text);
        system.write("/proc/self/cgroup", text);
        CHECK(system.bytes() == SystemAvailable::unlimited);
    }
    system.write("/proc/self/cgroup", "0::/" + std::string(8000, 'x') + "\n");
    CHECK(system.bytes() == SystemAvailable::unlimited);
    system.group("", "many", 0);
    CHECK(system.bytes() == SystemAvailable::unlimited);
}

TEST_CASE("this machine has something available, and no more than it has") {
    std::size_t total = 0;
    std::ifstream file{"/proc/meminfo"};
    std::string key;
    REQUIRE(static_cast<bool>(file >> key >> total));
    REQUIRE(key == "MemTotal:");
    std::size_t bytes = 0;
    REQUIRE(SystemMemory{}.host_available(bytes).ok());
    CHECK(bytes > 0);
    CHECK(bytes <= total * 1024);
}
} // namespace driver_system_available_test
