// The environment's settings: an invalid value is reported and has no other effect.
#include "../../examples/torch_memory_saver/thread_settings.hpp"
#include "support/machines.hpp"

namespace torch_memory_saver_settings_test {
using namespace tms;

struct Said {
    std::vector<std::string> lines;
    Settings read(const std::map<std::string, std::string>& variables) {
        return Settings::read(
            [&](const char* name) {
                const auto found = variables.find(name);
                return found == variables.end() ? nullptr : found->second.c_str();
            },
            [&](const std::string& line) { lines.push_back(line); });
    }
};

bool same(const Settings& a, const Settings& b) {
    const auto all = [](const Settings& s) {
        return std::tie(s.enable, s.cpu_backup, s.host_memory, s.disk_backup, s.retain, s.disk_directory,
                        s.disk_chunk_bytes, s.driver_min_bytes, s.control);
    };
    return all(a) == all(b);
}

/// With nothing set.
const Settings defaults{false, false, Keep::pinned, false, false, "/tmp", 0, 0, ""}; // NOLINT(cert-err58-cpp)

TEST_CASE("nothing set") {
    Said said;
    CHECK(same(said.read({}), defaults));
    CHECK(said.lines.empty());
}

TEST_CASE("everything set") {
    Said said;
    const Settings settings = said.read({{"TMS_INIT_ENABLE", "yes"},
                                         {"TMS_INIT_ENABLE_CPU_BACKUP", "True"},
                                         {"TMS_INIT_CPU_BACKUP_BACKEND", "mmap"},
                                         {"TMS_INIT_ENABLE_DISK_BACKUP", "no"},
                                         {"TMS_RETAIN_CPU_BACKUP", "1"},
                                         {"TMS_DISK_BACKUP_DIR", "/var/tmp"},
                                         {"TMS_DISK_BACKUP_CHUNK_MB", "64"},
                                         {"MEMSAVER_DRIVER_MIN_BYTES", "65536"},
                                         {"MEMSAVER_CONTROL", "/tmp/%p"}});
    CHECK(same(settings, {true, true, Keep::mmap, false, true, "/var/tmp", std::size_t{64} << 20, 65536, "/tmp/%p"}));
    CHECK(said.lines.empty());
}

TEST_CASE("a wrong value is one message, and the default") {
    const std::vector<std::pair<std::string, std::string>> wrong{{"TMS_INIT_ENABLE", "perhaps"},
                                                                 {"TMS_DISK_BACKUP_CHUNK_MB", "0"},
                                                                 {"TMS_DISK_BACKUP_CHUNK_MB", "18446744073709551615"},
                                                                 {"TMS_DISK_BACKUP_CHUNK_MB", "99999999999999999999"},
                                                                 {"TMS_DISK_BACKUP_CHUNK_MB", "1.5"},
                                                                 {"TMS_DISK_BACKUP_CHUNK_MB", " 1"},
                                                                 {"TMS_INIT_CPU_BACKUP_BACKEND", "floppy"},
                                                                 {"TMS_DISK_BACKUP_CHUNK_MB", "64MB"},
                                                                 {"MEMSAVER_DRIVER_MIN_BYTES", "-1"},
                                                                 {"TMS_RETAIN_CPU_BACKUP", ""}};
    for (const auto& variable : wrong) {
        CAPTURE(variable.first);
        CAPTURE(variable.second);
        Said said;
        CHECK(same(said.read({variable}), defaults));
        REQUIRE(said.lines.size() == 1);
        CHECK(said.lines.front().find(variable.first) != std::string::npos);
    }
}

TEST_CASE("host memory and a disk exclude each other") {
    Said said;
    const Settings settings = said.read({{"TMS_INIT_ENABLE_CPU_BACKUP", "1"}, {"TMS_INIT_ENABLE_DISK_BACKUP", "1"}});
    CHECK(settings.cpu_backup);
    CHECK(!settings.disk_backup);
    CHECK(said.lines.size() == 1);
}

TEST_CASE("a thread's initial settings, and those it keeps") {
    Settings settings;
    settings.enable = true;
    settings.disk_backup = true;
    Names names;
    const std::string* const tag = names.intern("default");
    CHECK(names.intern("default") == tag);
    CHECK(names.intern("other") != tag);
    ThreadSettings thread = ThreadSettings::first(settings, tag);
    CHECK(thread.in_region);
    CHECK(*thread.tag == "default");
    CHECK(thread.keep() == Keep::disk);
    thread.cpu_backup = true;
    CHECK(thread.keep() == Keep::pinned);
    thread.host_memory = Keep::mmap;
    CHECK(thread.keep() == Keep::mmap);
    thread.cpu_backup = thread.disk_backup = false;
    CHECK(thread.keep() == Keep::nothing);
}
} // namespace torch_memory_saver_settings_test
