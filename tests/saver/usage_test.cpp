// Usage: rows that add up, and the table of them.
#include "support/machines.hpp"

namespace saver_usage_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "the device's memory in use, and the part that is not the saver's" * on_machines) {
    (void)saver.arena("tag").allocate(64_MiB);
    const Ballast other{machine.driver, machine.free_bytes() - 128_MiB}; // another owner's
    const Usage usage = saver.usage();
    REQUIRE(usage.devices().size() == 1);
    const DeviceUsage& device = usage.devices()[0];
    CHECK(device.mapped_bytes == 64_MiB);
    CHECK(device.used_bytes + machine.free_bytes() == device.total_bytes);
    CHECK(device.unexplained_bytes == device.used_bytes - 64_MiB);
    CHECK(device.unexplained_bytes >= 128_MiB);
}

TEST_CASE_FIXTURE(OnSaver, "the table names everything" * on_machines) {
    (void)saver.arena("weights", Zero{}).allocate(6_MiB);
    (void)saver.arena("kv_cache").allocate(10_MiB);
    (void)saver.pause("weights");
    const std::string text = printed(saver.usage());
    CHECK(text.find("weights") < text.find("kv_cache")); // in the order in which they were made
    for (const char* part :
         {"tag", "device", "policy", "state", "reserved", "mapped", "peak", "used", "backed up", "weights", "zero",
          "paused", "6.00 MiB", "kv_cache", "discard", "active", "10.00 MiB", "by these tags"}) {
        CHECK_MESSAGE(contains(text, part), part << " in\n" << text);
    }
    CHECK(!contains(text, "could not be released"));
}

TEST_CASE_FIXTURE(OnSaver, "the table has the peak of mapped memory, also of paused tags") {
    const Arena arena = saver.arena("tag");
    void* const block = arena.allocate(48_MiB);
    (void)arena.allocate(6_MiB);
    arena.deallocate(block);
    (void)saver.pause();
    const std::string text = printed(saver.usage());
    std::istringstream row{text.substr(text.find('\n') + 1)};
    std::vector<std::string> read(14); // tag, device, policy, state, reserved, mapped, peak, used, backed up
    for (std::string& word : read) row >> word;
    CHECK(read[6] + ' ' + read[7] == "0 B");
    CHECK(read[8] + ' ' + read[9] == format_bytes(row_of(saver, "tag").peak_mapped_bytes));
    CHECK(row_of(saver, "tag").peak_mapped_bytes >= 54_MiB);
    CHECK(read[10] + ' ' + read[11] == "6.00 MiB");
}

TEST_CASE_FIXTURE(OnSaver, "the peak counts memory that an allocation released to make room for itself") {
    const Arena arena = saver.arena("tag", Discard{}, {.capacity = 128_MiB, .single_handle = true});
    void* const one = arena.allocate(60_MiB);
    void* const two = arena.allocate(60_MiB);
    arena.deallocate(one, already_idle);
    arena.deallocate(two, already_idle);
    (void)arena.allocate(70_MiB);
    CHECK(arena.usage().mapped_bytes < 120_MiB);
    CHECK(arena.usage().peak_mapped_bytes == 120_MiB);
}

TEST_CASE_FIXTURE(OnSaver, "pauses are counted if they released memory") {
    const Arena arena = saver.arena("tag", HostBackup{});
    void* const block = arena.allocate(8_MiB);
    machine.driver.fail({.call = Call::release});
    CHECK_THROWS_AS((void)saver.pause("tag"), DriverError);
    CHECK(arena.usage().pauses == 1);
    CHECK(contains(printed(saver.usage()), "8.00 MiB could not be released yet"));
    (void)saver.pause("tag"); // releases what was held
    CHECK(arena.usage().pauses == 1);
    (void)saver.resume("tag");
    machine.driver.fail({.call = Call::release});
    CHECK_THROWS_AS((void)saver.pause("tag"), DriverError);
    arena.deallocate(block);
    (void)saver.resume("tag"); // nothing to restore: releases what was held
    CHECK(arena.usage().pauses == 2);
}
} // namespace saver_usage_test
