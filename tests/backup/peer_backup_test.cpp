// Backups in another device's memory: the memory used there, which devices access it, and what is released.
#include "backup/backup_support.hpp"
#include "memsaver/backup/peer_store.hpp"
#include "support/each_of.hpp"
#include "support/sampling.hpp"

namespace backup_peer_backup_test {
using namespace test;

constexpr std::size_t whole_bytes = 7_MiB; // at least so many in all

/// Blocks of many sizes with bytes.
struct Some : Blocks<MachineDriver> {
    Some(const MachineDriver& on, const Arena& arena) : Blocks{on, arena, {1, 70'000, 2_MiB + 17, 5_MiB}} { write(1); }
};

/// A saver, and a machine beside it.
struct OnPeer : OnMachine {
    const Checked peer{1};
    MemorySaver<MachineDriver> saver{machine.driver};
};

TEST_CASE_FIXTURE(OnPeer, "PeerBackup: bytes are kept on the peer, and none on the host" * on_hosts) {
    const std::string how = each_of<std::string>({"retained", "given back", "once", "once, not retained"});
    const bool once = how.starts_with("once");
    const bool retain = how == "retained" || how == "once";
    const PeerBackup policy{peer.driver, once ? Refresh::once : Refresh::every_pause, retain || once};
    const Some blocks{machine.driver, saver.arena("parked", policy)};
    saver.set_retain("parked", retain);
    for (int round = 0; round < 2; ++round) {
        const Report paused = saver.pause("parked");
        CHECK(paused.released_bytes > whole_bytes);
        CHECK((paused.saved_bytes == 0) == (once && round > 0));
        CHECK(peer.driver.handle_bytes() >= whole_bytes);
        CHECK(row_of(saver, "parked").backed_up_bytes >= whole_bytes);
        CHECK(machine.driver.calls(Call::map_host) == 0);
        saver.resume("parked");
        CHECK(blocks.whole());
        CHECK((peer.driver.handle_bytes() != 0) == (retain || once));
    }
}

TEST_CASE_FIXTURE(OnPeer, "PeerBackup: prepared ahead, saved ahead, streamed back, exchanged" * on_hosts) {
    const Arena first = saver.arena("first", PeerBackup{peer.driver, Refresh::once});
    const Arena second = saver.arena("second", PeerBackup{peer.driver});
    const Some a{machine.driver, first};
    const Some b{machine.driver, second};
    saver.prepare({"first", "second"});
    const std::uint64_t created = peer.driver.calls(Call::create);
    CHECK(created != 0);
    saver.save("first").wait();
    CHECK(saver.pause("first").saved_bytes == 0);
    saver.exchange("second", "first");
    CHECK(a.whole());
    saver.exchange("first", "second");
    CHECK(b.whole());
    Arrival coming = saver.resume_async("first", {.first = {{a.at(3), 5_MiB}}});
    coming.wait(a.at(3), 5_MiB);
    CHECK(a.whole(3));
    coming.wait();
    CHECK(a.whole());
    CHECK(peer.driver.calls(Call::create) == created); // `prepare` allocated all of it
}

TEST_CASE_FIXTURE(OnSaver,
                  "PeerBackup: a full peer is OutOfMemory that names it, and the tag stays active" * on_hosts) {
    const HostDriver small{4_MiB, {.device = 1}};
    const Arena arena = saver.arena("parked", PeerBackup{small});
    Some blocks{machine.driver, arena};
    const auto error = thrown<OutOfMemory>([&] { saver.pause("parked"); });
    CHECK(error.needed_bytes() >= whole_bytes);
    CHECK(error.free_bytes() == 4_MiB);
    for (const std::string& part : {std::string{"tag \"parked\""}, small.name()}) CHECK(contains(error.what(), part));
    CHECK(blocks.whole());
    CHECK(small.counts().held_bytes == 0);
    CHECK_THROWS_AS(saver.prepare("parked"), OutOfMemory);
    blocks.drop(3);
    saver.pause("parked"); // the rest fits
    saver.resume("parked");
    CHECK(blocks.whole(2));
}

TEST_CASE("PeerBackup: a block that is larger than a handle of the peer's is kept in one contiguous range") {
    const HostDriver own{2_GiB};
    const MachineDriver other{HostDriver{2_GiB, {.device = 1}}};
    MemorySaver saver{own};
    (void)saver.arena("parked", PeerBackup{other}).allocate(1_GiB + 6_MiB);
    saver.prepare("parked"); // copies nothing: this test must not use that much host memory
    CHECK(other.handle_bytes() == 1_GiB + 6_MiB);
    CHECK(other.calls(Call::map) == 2);
    CHECK(other.violations().empty());
    saver.close();
    CHECK(other.handle_bytes() == 0);
}

TEST_CASE("PeerBackup: the tag's own device is Misuse, and other options are another policy") {
    const HostDriver own{64_MiB};
    const HostDriver other{64_MiB, {.device = 1}};
    MemorySaver saver{own};
    CHECK_THROWS_AS((void)saver.arena("parked", PeerBackup{own}), Misuse);
    (void)saver.arena("parked", PeerBackup{other}).allocate(1_MiB);
    CHECK_NOTHROW((void)saver.arena("parked", PeerBackup{other}));
    CHECK_THROWS_AS((void)saver.arena("parked", PeerBackup{other, Refresh::once}), Misuse);
    CHECK(std::string{PeerBackup{other}.name()} == "peer");
    CHECK(PeerBackup{other}.describe() == "on " + other.name() + ", saved at every pause, retained");
}

TEST_CASE("PeerBackup: a device that is lost with bytes on their way leaves nothing on the peer") {
    const bool away = either("a resume", "a save");
    const HostDriver host{256_MiB, {.late = true}};
    const Checked peer{HostDriver{256_MiB, {.device = 1}}};
    const MachineDriver driver{host};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("parked", PeerBackup{.peer = peer.driver, .refresh = Refresh::once});
    write_pattern(driver, arena.allocate(3_MiB), 3_MiB, 1);
    if (away) saver.pause("parked");
    const Arrival moving = away ? saver.resume_async("parked") : saver.save("parked");
    host.lose();
    CHECK_THROWS_AS(moving.wait(), DeviceLost);
    CHECK_NOTHROW(saver.close());
}

TEST_CASE("PeerStore: pages that copies may still reach do not go back before the device has been waited for") {
    const Checked checked_home{HostDriver{64_MiB}};
    const Checked checked_away{HostDriver{64_MiB, {.device = 1}}};
    const MachineDriver& home = checked_home.driver;
    const MachineDriver& away = checked_away.driver;
    Address memory = 0;
    REQUIRE(home.allocate_plain(2_MiB, memory).ok());
    PeerStore store{home, away, {{.threads = 1}, 4_MiB}};
    const Room stays = store.grow(2_MiB, {});
    const Room room = store.grow(2_MiB, {});
    home.fail({.call = Call::wait, .lasting = Lasting::onwards});
    home.fail({.call = Call::drain, .lasting = Lasting::onwards});
    CHECK(!store.move(Direction::out, {{memory, room.location, room.bytes}}, {})->wait().ok());
    LocationSpace space{256};
    space.add(room.location, room.bytes);
    store.shrink(space);
    CHECK(away.handle_bytes() == 4_MiB);
    home.heal();
    CHECK(store.retry().ok());
    CHECK(away.handle_bytes() == 2_MiB);
    std::vector<std::byte> host(64_KiB); // nothing may use it after a failure either
    away.fail({.call = Call::wait});
    CHECK(!store.put(host.data(), stays.location, host.size()).ok());
    CHECK(away.host_bytes() == 0);
    away.fail({.call = Call::wait});
    away.fail({.call = Call::drain, .lasting = Lasting::onwards});
    CHECK(!store.put(host.data(), stays.location, host.size()).ok());
    CHECK(away.host_bytes() != 0); // of the store's own, which the copy may still use
    CHECK(!store.get(host.data(), stays.location, host.size()).ok());
    away.heal();
    CHECK(store.clear().ok());
    CHECK(away.host_bytes() == 0);
    CHECK(home.free_plain(memory).ok());
}

TEST_CASE("PeerBackup: each call on the peer fails in turn, and no byte is lost nor any memory") {
    const Call call = each_of({Call::reserve, Call::create, Call::map, Call::allow_access, Call::reach_peer,
                               Call::copy_peer, Call::record, Call::wait, Call::unmap, Call::release, Call::unreserve});
    const Sampling sample = sampling().of(call_name(call));
    for (std::uint64_t nth = 1 + sample.first(3); nth <= 6; nth += sample.stride(3)) {
        const Checked machine{HostDriver{64_MiB}};
        const Checked peer{HostDriver{64_MiB, {.device = 1}}};
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("parked", PeerBackup{.peer = peer.driver, .retain = false});
        const Filled block{machine.driver, arena, 70'000};
        peer.driver.fail({.call = call, .nth = nth});
        for (int round = 0; round < 2; ++round) {
            try {
                pause_and_resume(saver, "parked");
            } catch (const Error&) { // the next round continues
            }
        }
        peer.driver.heal();
        for (int round = 0; round < 2; ++round) {
            saver.resume("parked");
            CHECK(block.whole());
            saver.pause("parked");
        }
    }
}

TEST_CASE("peer backup: if the peer has no room, room is made there, and not on the tag's device") {
    const HostDriver peer{8_MiB, {.device = 1}};
    std::vector<int> asked;
    MemorySaver saver{HostDriver{64_MiB}, {.evict_for_allocations = true, .on_no_room = [&](const NoRoom& lack) {
                                               return asked.push_back(lack.device), false;
                                           }}};
    (void)saver.arena("in", HostBackup{}).allocate(16_MiB);
    (void)saver.pause("in");
    (void)saver.arena("out", PeerBackup{peer}).allocate(16_MiB);
    const Arena idle = saver.arena("idle", HostBackup{}, ArenaOptions{.evictable = true});
    (void)idle.allocate(40_MiB);
    CHECK(thrown<OutOfMemory>([&] { (void)saver.exchange("out", "in"); }).device() == 1);
    CHECK(asked == std::vector{1});
    CHECK(idle.usage().state == "active");
}
} // namespace backup_peer_backup_test
