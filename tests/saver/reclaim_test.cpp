// Reclaims: release a given amount to the device, from unused memory and then from idle tags.
#include "support/machines.hpp"

namespace saver_reclaim_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "reclaim: unused memory first, then idle tags, and it says why not more" * on_hosts) {
    const Buffer<char> kept{saver.arena("kept"), 8_MiB};
    const Filled a{machine.driver, saver.arena("a", HostBackup{.threads = 1}), 8_MiB};
    const Buffer<char> b{saver.arena("b", HostBackup{.threads = 1}), 8_MiB};
    (void)saver.use({"a", "b"});
    (void)saver.use("a"); // later
    { const Buffer<char> gone{saver.arena("kept"), 8_MiB}; }

    const std::size_t before = machine.free_bytes();
    const Reclaimed first = saver.reclaim(4_MiB);
    CHECK(first.unused_bytes == 8_MiB);
    CHECK(first.evicted_bytes == 0);
    CHECK(first.why_not_more.empty());
    CHECK(machine.free_bytes() == before + 8_MiB);

    const Reclaimed second = saver.reclaim(4_MiB);
    CHECK(second.evicted_bytes == 8_MiB);
    CHECK(row_of(saver, "b").state == "paused"); // used less recently
    CHECK(row_of(saver, "a").state == "active");
    CHECK(second.report.released_bytes == 8_MiB);
    CHECK(second.report.saved_bytes == 8_MiB);

    const Reclaimed third = saver.reclaim(1_GiB);
    CHECK(third.bytes() == 8_MiB);
    REQUIRE(third.holders.size() == 1);
    CHECK(third.holders[0].tag == "kept");
    CHECK(third.holders[0].state == "not evictable");
    CHECK(contains(printed(third),
                   "reclaimed 8.00 MiB (1.00 GiB requested): 0 B unused, 8.00 MiB of idle tags; held: \"kept\""));
    CHECK(saver.usage().residency().evictions == 2);
    (void)saver.use("a");
    CHECK(a.whole());
    CHECK(saver.reclaim(0).bytes() == 0);
}

TEST_CASE_FIXTURE(OnSaver, "reclaim: tags in use stay, also until their marks have passed, and others do not") {
    HeldStream stream{machine.driver};
    const Buffer<char> a{saver.arena("a"), 8_MiB};
    Use use = saver.use("a");
    const Reclaimed none = saver.reclaim(1_MiB);
    CHECK(none.bytes() == 0);
    REQUIRE(none.holders.size() == 1);
    CHECK(none.holders[0].users == 1);
    CHECK(contains(none.why_not_more, "in use by 1"));
    use.until(stream.get());
    use.release();
    const Buffer<char> b{saver.arena("b"), 8_MiB};
    (void)saver.use("b");
    CHECK(saver.reclaim(16_MiB, {.timeout = 0ms}).evicted_bytes == 8_MiB);
    CHECK(row_of(saver, "a").state == "active");
    stream.let_go();
    CHECK(saver.reclaim(1_MiB, {.timeout = 10min}).bytes() == 8_MiB);
}

TEST_CASE_FIXTURE(OnSaver, "reclaim: bytes that hooks release after a pause count, their time does not") {
    const Buffer<char> a{saver.arena("a", Discard{}, {.evictable = true, .priority = -1}), 8_MiB};
    const Buffer<char> b{saver.arena("b", Discard{}, {.evictable = true}), 8_MiB};
    constexpr auto slept = 20ms;
    const Hook hook = saver.after_pause([&](PauseEvent& event) {
        TagReport row;
        row.tag = "pools";
        row.released_bytes = 8_MiB;
        event.report.add(row);
        std::this_thread::sleep_for(slept);
    });
    const auto begin = std::chrono::steady_clock::now();
    const Reclaimed got = saver.reclaim(8_MiB);
    CHECK(got.evicted_bytes == 16_MiB);
    CHECK(got.report.tags.size() == 2);
    CHECK(got.report.released_bytes == 16_MiB);
    CHECK(got.report.elapsed + slept <= std::chrono::steady_clock::now() - begin);
    CHECK(row_of(saver, "b").state == "active"); // enough was released
}

TEST_CASE("reclaim: a device whose last tag has been dropped does not belong to the saver") {
    const Checked checked{host_machine};
    const HostDriver other{64_MiB, {.device = 1}};
    MemorySaver saver{AnyDriver{checked.driver}};
    (void)saver.arena("b", Discard{}, AnyDriver{other});
    CHECK_NOTHROW((void)saver.reclaim(1, {.device = 1}));
    CHECK(saver.usage().devices().size() == 2);
    saver.drop("b");
    CHECK_THROWS_AS((void)saver.reclaim(1, {.device = 1}), Misuse);
    CHECK(saver.usage().devices().size() == 1);
    CHECK_NOTHROW((void)saver.arena("b", Discard{}, AnyDriver{other}));
    CHECK(saver.usage().devices().size() == 2);
}
} // namespace saver_reclaim_test
