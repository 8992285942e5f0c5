// Out of addresses is not out of memory: an error of its own, for which nobody is asked for room and nothing is paused.
#include "support/machines.hpp"

namespace saver_addresses_test {
using namespace test;

/// A saver whose machine has no more addresses, though nearly all of its memory is free: tag "cache" could be paused.
/// Calls `wants(saver)`, which must fail for want of addresses, with each kind of status that machines have for that.
void without_addresses(const std::function<void(MemorySaver<>&)>& wants) {
    for (const StatusKind kind : {StatusKind::out_of_memory, StatusKind::out_of_addresses}) {
        MachineDriver driver{HostDriver{4_GiB}};
        int asked = 0;
        MemorySaver<> saver{AnyDriver{driver}, {.on_no_room = [&](const NoRoom&) { return ++asked < 3; }}};
        const Arena cache = saver.arena("cache", Discard{});
        (void)cache.allocate(64_MiB);
        const Buffer<char> kept{saver.arena("kept", HostBackup{}), 1_MiB};
        write_pattern(driver, kept.data(), 1_MiB, 7);
        driver.fail({.call = Call::reserve, .lasting = Lasting::onwards, .kind = kind});
        const auto error = thrown<OutOfAddresses>([&] { wants(saver); });
        CHECK(std::string{error.what()}.find("out of addresses") != std::string::npos);
        CHECK(error.status().kind == StatusKind::out_of_addresses);
        CHECK(asked == 0);
        CHECK(cache.usage().mapped_bytes >= 64_MiB);
        CHECK(saver.pause("kept").released_bytes >= 1_MiB); // giving back and taking again need no addresses
        CHECK(saver.resume("kept").mapped_bytes >= 1_MiB);
        CHECK(has_pattern(driver, kept.data(), 1_MiB, 7));
        CHECK(saver.pause("cache").released_bytes >= 64_MiB);
        driver.heal();
        CHECK(saver.owns(saver.arena("w").allocate(1_MiB)));
    }
}

TEST_CASE("out of addresses: an allocation, a reserve, elastic memory, plain memory and a use do not ask for room") {
    without_addresses([](MemorySaver<>& saver) { (void)saver.arena("w").allocate(1_MiB); });
    without_addresses([](MemorySaver<>& saver) { (void)saver.arena("cache").allocate(1_GiB); });
    without_addresses([](MemorySaver<>& saver) { (void)saver.arena("w", ArenaOptions{.reserve = 64_MiB}); });
    without_addresses([](MemorySaver<>& saver) { (void)saver.arena("w").elastic(1_GiB); });
}
} // namespace saver_addresses_test
