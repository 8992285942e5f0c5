// Blocks behind single handles: large ones, and exchanged ones; the model (tests/model) has the others.
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

} // namespace saver_single_handle_test
