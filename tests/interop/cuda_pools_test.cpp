// trim_cuda_pools: memory retained by stream-ordered pools and graphs is released after a pause, and before a resume
// returns.
#include "support/each_of.hpp"

namespace interop_cuda_pools_test {
using namespace test;
using D = MachineDriver;

/// Adds memory to a pool that is already freed.
void leave_in(const D& driver, PoolRef pool, std::size_t bytes) {
    REQUIRE(host_of(driver).put_in_pool(pool, bytes).ok());
    REQUIRE(host_of(driver).free_pool(pool).ok());
}

std::optional<TagReport> pools_of(const Report& report, int device = 0) {
    for (const TagReport& row : report.tags) {
        if (row.tag == "CUDA pools" && row.device == device) return row;
    }
    return {};
}

TEST_CASE_FIXTURE(OnTold, "after a pause the pools are trimmed, and the bytes released are reported") {
    void* const block = saver.arena("tag").allocate(4_MiB);
    Hook trim = saver.after_pause(trim_cuda_pools);
    leave_in(machine.driver, {}, 8_MiB);
    leave_in(machine.driver, PoolRef::of_graphs(), 6_MiB);
    REQUIRE(host_of(machine.driver).put_in_pool({}, 2_MiB).ok()); // in use
    const Report paused = saver.pause();
    CHECK(host_of(machine.driver).counts().held_bytes == 2_MiB);
    CHECK(paused.released_bytes == 18_MiB);
    const auto row = pools_of(paused);
    REQUIRE(row);
    CHECK(row->released_bytes == 14_MiB);
    CHECK(row->held_bytes == 2_MiB);
    const std::vector<Event> of_pools = told.of(EventKind::trimmed);
    REQUIRE(of_pools.size() == 1);
    CHECK(of_pools[0].text == "CUDA pools: 16.00 MiB reserved before, 2.00 MiB after");
    CHECK(of_pools[0].bytes_done == 14_MiB);
    CHECK(of_pools[0].bytes_total == 16_MiB);

    REQUIRE(host_of(machine.driver).free_pool({}).ok());
    leave_in(machine.driver, {}, 4_MiB); // a weight update, in place
    const Report resumed = saver.resume();
    CHECK(resumed.mapped_bytes == 4_MiB);
    REQUIRE(pools_of(resumed));
    CHECK(pools_of(resumed)->released_bytes == 6_MiB);
    CHECK(told.of(EventKind::trimmed).size() == 2);

    leave_in(machine.driver, {}, 4_MiB);
    trim = Hook{}; // both have ended
    pause_and_resume(saver);
    CHECK(told.of(EventKind::trimmed).size() == 2);
    CHECK(machine.driver.inner().trim_pool({}, 0).ok());
    CHECK(told.texts().empty());
    saver.deallocate(block);
}

TEST_CASE_FIXTURE(OnTold, "trimming after a resume can be switched off, and done separately") {
    (void)saver.arena("tag").allocate(4_MiB);
    {
        const Hook only_paused = saver.after_pause(TrimCudaPools{.after_resume = false});
        (void)saver.pause();
        CHECK(told.of(EventKind::trimmed).size() == 1);
        (void)saver.resume();
        CHECK(told.of(EventKind::trimmed).size() == 1);
    }
    const Hook only_resumed = saver.after_resume(trim_cuda_pools);
    (void)saver.pause();
    CHECK(told.of(EventKind::trimmed).size() == 1);
    const Report resumed = saver.resume();
    CHECK(told.of(EventKind::trimmed).size() == 2);
    CHECK(!pools_of(resumed)); // the pools held nothing: no row
}

TEST_CASE_FIXTURE(OnSaver, "bytes that may be kept are kept, graphs' memory can be left out, own pools are trimmed") {
    (void)saver.arena("tag").allocate(4_MiB);
    HostPool own;
    leave_in(machine.driver, {}, 4_MiB);
    leave_in(machine.driver, {}, 4_MiB);
    leave_in(machine.driver, &own, 8_MiB);
    leave_in(machine.driver, PoolRef::of_graphs(), 2_MiB);
    const Hook trim =
        saver.after_pause(TrimCudaPools{.graph_memory = false, .keep_bytes = 4_MiB, .pools = {PoolRef{&own}}});
    const Report paused = saver.pause();
    REQUIRE(pools_of(paused));
    CHECK(pools_of(paused)->released_bytes == 12_MiB);
    CHECK(pools_of(paused)->held_bytes == 4_MiB);
    CHECK(host_of(machine.driver).counts().held_bytes == 6_MiB);
    const TrimmedPools rest = trim_cuda_pools.trim(machine.driver);
    CHECK(rest.before_bytes == 6_MiB);
    CHECK(rest.after_bytes == 0);
}

TEST_CASE_FIXTURE(OnTwo, "every device that tags live on is trimmed") {
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("tag", Discard{}, second.driver).allocate(2_MiB);
    const Hook trim = saver.after_pause(trim_cuda_pools);
    leave_in(first.driver, {}, 4_MiB);
    leave_in(second.driver, {}, 6_MiB);
    const Report paused = saver.pause();
    REQUIRE((pools_of(paused, 0) && pools_of(paused, 1)));
    CHECK(pools_of(paused, 0)->released_bytes == 4_MiB);
    CHECK(pools_of(paused, 1)->released_bytes == 6_MiB);
}

TEST_CASE_FIXTURE(OnTold, "a trim that fails does not fail the pause, and is reported") {
    const Call call = each_of({Call::pool_memory, Call::trim_pool});
    (void)saver.arena("tag").allocate(2_MiB);
    const Hook trim = saver.after_pause(trim_cuda_pools);
    leave_in(machine.driver, {}, 4_MiB);
    machine.driver.fail({.call = call});
    CHECK(saver.pause().released_bytes == 2_MiB);
    REQUIRE(told.texts().size() == 1);
    CHECK(contains(told.texts()[0], "memory pool"));
    (void)saver.resume(); // retried
    CHECK(host_of(machine.driver).counts().held_bytes == 2_MiB);
    machine.driver.fail({.call = call});
    CHECK_THROWS_AS((void)trim_cuda_pools.trim(machine.driver), DriverError);
}

/// A machine without pools.
struct NoPools : DeviceAround {
    using DeviceAround::DeviceAround;
    Status trim_pool(PoolRef pool, std::size_t keep) noexcept override { return Device::trim_pool(pool, keep); }
    Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override { return Device::pool_memory(pool, bytes); }
};

TEST_CASE("on a driver without pools the hook does nothing") {
    Told told;
    MemorySaver saver{test::HostWith<NoPools>{64_MiB}, {.events = told.sink()}};
    void* const block = saver.arena("tag").allocate(2_MiB);
    const Hook trim = saver.after_pause(trim_cuda_pools);
    CHECK(saver.pause().released_bytes == 2_MiB);
    (void)saver.resume();
    CHECK(told.of(EventKind::trimmed).empty());
    CHECK(told.texts().empty());
    CHECK_THROWS_AS((void)trim_cuda_pools.trim(saver.driver()), Unavailable);
    saver.deallocate(block);
}
} // namespace interop_cuda_pools_test
