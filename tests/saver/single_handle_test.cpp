// Blocks behind single handles: allocated, freed, paused, exchanged and grown.
#include "support/handles.hpp"
#include "support/machines.hpp"

namespace saver_single_handle_test {
using namespace test;

const ArenaOptions one_handle{.single_handle = true};

/// A machine that records its mapped handles.
struct Watched : Checked {
    using Checked::Checked;
    Handles<MachineDriver> live{driver};
};

TEST_CASE("single handle: without it neighbours are resumed behind one handle, with it they are not" * on_machines) {
    const Watched machine;
    MemorySaver saver{machine.driver};
    for (const bool single : {false, true}) {
        const Arena arena = saver.arena(single ? "apart" : "together", ArenaOptions{.single_handle = single});
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i) blocks.push_back(arena.allocate(40_MiB));
        const std::size_t before = machine.live.count();
        saver.pause(arena.tag());
        saver.resume(arena.tag());
        const std::size_t after = machine.live.count();
        CHECK((single ? after == before : after < before));
        for (void* const block : blocks) saver.deallocate(block);
        saver.drop(arena.tag());
    }
}

TEST_CASE("single handle: a block larger than other arenas' extents, and a reserve") {
    const Watched machine{HostDriver{2_GiB}};
    const auto& live = machine.live;
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("net", {.reserve = 8_MiB, .single_handle = true});
    CHECK(live.count() == 1);
    void* const large = arena.allocate(1_GiB + 4_MiB);
    CHECK(live.count() == 2);
    CHECK(live.behind_one(large, 1_GiB + 4_MiB));
    pause_and_resume(saver, "net");
    CHECK(live.count() == 1); // the reserve had no blocks
    CHECK(live.behind_one(large, 1_GiB + 4_MiB));
    CHECK_THROWS_AS((void)arena.allocate(1_GiB + 4_MiB), OutOfMemory);
}

TEST_CASE("single handle: an exchange hands on handles of the block's own size only" * on_machines) {
    const Watched machine;
    MemorySaver saver{machine.driver};
    const auto good = [&](const Filled<MachineDriver>& block) {
        return machine.live.behind_one(block.data(), block.size()) && block.whole();
    };
    const Arena in = saver.arena("in", HostBackup{}, one_handle);
    const Filled first{machine.driver, in, 32_MiB, 1};
    const Filled second{machine.driver, in, 48_MiB, 2};
    saver.pause("in");
    const Arena out = saver.arena("out", HostBackup{}, one_handle);
    const Filled same{machine.driver, out, 32_MiB, 3};
    (void)out.allocate(24_MiB);
    CHECK(saver.exchange("out", "in").handed_bytes == 32_MiB);
    CHECK((good(first) && good(second)));
    saver.exchange("in", "out");
    CHECK(good(same));
}

TEST_CASE("single handle: each step of an elastic range has one, and blocks never span steps" * on_machines) {
    const Watched machine;
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("kv", HostBackup{}, one_handle);
    const auto step_of = [](const Elastic& kv, std::size_t n) {
        return static_cast<char*>(kv.data()) + n * kv.granularity();
    };
    {
        Elastic kv = arena.elastic(64_MiB, {.granularity = 8_MiB});
        kv.commit(0, 24_MiB);
        CHECK(machine.live.count() == 3);
        for (std::size_t n = 0; n < 3; ++n) write_pattern(machine.driver, step_of(kv, n), 8_MiB, n);
        saver.pause("kv");
        kv.release(8_MiB, 8_MiB);
        saver.resume("kv");
        CHECK(machine.live.count() == 2);
        kv.commit(8_MiB, 8_MiB);
        CHECK(has_pattern(machine.driver, step_of(kv, 0), 8_MiB, 0));
        CHECK(has_pattern(machine.driver, step_of(kv, 2), 8_MiB, 2));
    }
    void* const block = arena.allocate(20_MiB); // the range's own handles would suffice if joined
    CHECK(machine.live.behind_one(block, 20_MiB));
    pause_and_resume(saver, "kv");
    CHECK(machine.live.behind_one(block, 20_MiB));
    CHECK(machine.driver.handle_bytes() == 20_MiB); // and the range's handles are released
    saver.deallocate(block);
}
} // namespace saver_single_handle_test
