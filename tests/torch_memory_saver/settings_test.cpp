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

TEST_CASE("nothing set") {
    Said said;
    const Settings settings = said.read({});
    CHECK(!settings.enable);
    CHECK(!settings.cpu_backup);
    CHECK(!settings.disk_backup);
    CHECK(!settings.retain);
    CHECK(settings.host_memory == Keep::pinned);
    CHECK(settings.disk_directory == "/tmp");
    CHECK(settings.disk_chunk_bytes == 0);
    CHECK(settings.driver_min_bytes == 0);
    CHECK(settings.control.empty());
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
    CHECK(settings.enable);
    CHECK(settings.cpu_backup);
    CHECK(settings.host_memory == Keep::mmap);
    CHECK(!settings.disk_backup);
    CHECK(settings.retain);
    CHECK(settings.disk_directory == "/var/tmp");
    CHECK(settings.disk_chunk_bytes == std::size_t{64} << 20);
    CHECK(settings.driver_min_bytes == 65536);
    CHECK(settings.control == "/tmp/%p");
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
        const Settings settings = said.read({{variable.first, variable.second}});
        CHECK(!settings.enable);
        CHECK(settings.host_memory == Keep::pinned);
        CHECK(settings.disk_chunk_bytes == 0);
        CHECK(settings.driver_min_bytes == 0);
        CHECK(!settings.retain);
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
