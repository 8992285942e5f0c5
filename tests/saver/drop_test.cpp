// The lifetime of a tag: made, dropped, made again; what outlives it, and the fate of its backup.
#include "backup/backup_support.hpp"
#include "support/each_of.hpp"
#include "support/manual_backup.hpp"

namespace saver_drop_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "drop: releases everything of a tag, and its name is unknown again" * on_quick) {
    const Arena gone = saver.arena("lora.1", HostBackup{});
    void* const block = gone.allocate(4_MiB);
    const Buffer<char> other{saver.arena("lora.2", HostBackup{}), 1 << 20};
    const std::size_t handles = machine.driver.handle_bytes();
    saver.drop("lora.1");
    CHECK(machine.driver.handle_bytes() < handles);
    CHECK(saver.usage().size() == 1);
    CHECK_THROWS_AS(saver.pause("lora.1"), Misuse);
    CHECK_THROWS_AS(saver.deallocate(block), Misuse);
    CHECK(!saver.owns(block));
    CHECK(saver.owns(other.data()));
    const Arena again = saver.arena("lora.1", Discard{}); // with any policy
    CHECK(!(again == gone));
    saver.deallocate(again.allocate(1_MiB));
    pause_and_resume(saver);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnSaver, "drop: a paused tag's kept bytes are freed with it, and a list of tags at once") {
    const Buffer<char> a{saver.arena("m/a", HostBackup{}), 8 << 20};
    const Buffer<char> b{saver.arena("m/b", HostBackup{}), 8 << 20};
    const Buffer<char> c{saver.arena("c"), 8 << 20};
    (void)saver.pause({"m/a", "m/b"});
    CHECK_THROWS_AS(saver.drop({"m/a", "m/x"}), Misuse); // checked before anything changes
    CHECK(saver.usage().size() == 3);
    saver.drop(Tags::under("m/"));
    CHECK(saver.usage().size() == 1);
    CHECK(saver.bytes_to_resume() == 0);
    saver.drop(Tags::under("m/")); // no tag with that prefix is left
    CHECK_THROWS_AS(saver.drop("m/a"), Misuse);
}

TEST_CASE_FIXTURE(OnMachine, "drop: handles of a dropped tag end silently, in any order") {
    Told told;
    std::optional<MemorySaver<>> saver{MemorySaver{machine.driver, {.events = told.sink()}}};
    Arena arena = saver->arena("a");
    Buffer<char> buffer{arena, 1 << 20};
    std::optional<WorkspacePool> pool{arena};
    (void)pool->get("w", 1_MiB);
    {
        const Region region{arena};
        saver->drop("a");
    }
    saver.reset();
    pool.reset();
    buffer.reset();
    arena = {};
    CHECK(told.texts().empty());
}

TEST_CASE_FIXTURE(OnEither, "drop: handles that outlive the tag say that it was dropped, not closed") {
    const Arena gone = saver.arena("lora");
    const Arena there = saver.arena("there");
    void* const block = gone.allocate(1_MiB);
    Buffer<char> buffer{gone, 1 << 20};
    WorkspacePool pool{gone};
    const Region region{gone};
    saver.drop("lora");
    (void)saver.arena("lora"); // another one
    const std::string dropped = "tag \"lora\" has been dropped";
    check_says<Misuse>(dropped, [&] { (void)gone.allocate(1_MiB); });
    check_says<Misuse>(dropped, [&] { (void)Buffer<char>{gone, 10}; });
    check_says<Misuse>(dropped, [&] { (void)saver.allocate(1_MiB); });
    check_says<Misuse>("dropped", [&] { gone.deallocate(block); });
    check_says<Misuse>("dropped", [&] { buffer.reset(StreamRef{}); });
    check_says<Misuse>("dropped", [&] { (void)pool.get("w", 100); });
    check_says<Misuse>("dropped", [&] { saver.deallocate(block); });
    if (enabled) check_says<Misuse>(dropped, [&] { (void)gone.backup_view(block, 1); });
    CHECK(gone.usage().state == "dropped");
    CHECK(gone.usage().mapped_bytes == 0);
    for (const ArenaUsage& row : saver.usage()) CHECK(row.state != "dropped");
    saver.close();
    CHECK(gone.usage().state == "dropped");
    CHECK(there.usage().state == "closed");
}

TEST_CASE("drop: tags whose pages could not be released are in no use's way, and are tried again one by one") {
    const Checked machine{HostDriver{64_MiB}};
    const Checked another{HostDriver{64_MiB, {.device = 1}}};
    MemorySaver<> saver{AnyDriver{machine.driver}};
    (void)saver.arena("a", Discard{}, {.evictable = true}).allocate(28_MiB);
    (void)saver.arena("a", Discard{}, AnyDriver{another.driver}).allocate(4_MiB);
    (void)saver.arena("m.b", Discard{}, AnyDriver{another.driver}).allocate(28_MiB);
    (void)saver.arena("d", Discard{}).allocate(28_MiB);
    (void)saver.pause("d");
    (void)saver.arena("m.c", Discard{}, {.evictable = true}).allocate(16_MiB);
    machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
    another.driver.fail({.call = Call::drain});
    CHECK_THROWS_AS(saver.drop("a"), DriverError); // on the other device it stays
    machine.driver.heal();
    another.driver.fail({.call = Call::unmap});
    CHECK_THROWS_AS(saver.drop("m.b"), DriverError);
    (void)saver.use(Tags::under("m."));
    (void)saver.use("d", {.room_within = 0ms}); // evicts
    CHECK(row_of(saver, "m.c").state == "paused");
    for (const ArenaUsage& row : saver.usage()) CHECK((row.tag != "a" || row.device == 0 || row.state == "active"));
    machine.driver.fail({.call = Call::unmap, .lasting = Lasting::onwards});
    (void)saver.arena("e");
    CHECK(another.driver.outstanding().reservations == 1);
    machine.driver.heal();
}

TEST_CASE_FIXTURE(OnSaver, "drop: tags that are made and dropped leave nothing behind") {
    for (int i = 0; i < 1000; ++i) {
        const std::string name = "lora." + std::to_string(i);
        const Arena arena = saver.arena(name, Discard{}, ArenaOptions{.capacity = 16_MiB});
        arena.deallocate(arena.allocate(4_KiB), already_idle);
        saver.drop(name);
    }
    CHECK(saver.usage().size() == 0);
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(machine.driver.outstanding().reservations == 0);
}

TEST_CASE_FIXTURE(OnSaver, "set_retain: host memory and files are kept or freed from the next resume on") {
    const FileBackup file{.directory = "/tmp", .threads = 1, .ring_bytes = 4_MiB};
    Filled block{machine.driver, saver.arena("w", HostBackup{.threads = 1}), 8_MiB};
    Filled filed{machine.driver, saver.arena("f", file), 4_MiB};
    const auto cycle = [&](std::uint64_t seed) {
        block.write(seed);
        filed.write(seed);
        pause_and_resume(saver);
        CHECK((block.whole() && filed.whole()));
    };
    cycle(1);
    CHECK(row_of(saver, "w").backed_up_bytes == 8_MiB);
    CHECK(row_of(saver, "f").backed_up_bytes == 4_MiB);
    saver.set_retain({"w", "f"}, false);
    CHECK(row_of(saver, "w").backed_up_bytes == 8_MiB); // until the next resume
    cycle(2);
    CHECK(machine.driver.host_bytes() == 0);
    CHECK(machine.driver.outstanding().files == 0);
    (void)saver.arena("own", ManualBackup{});
    check_says<Misuse>("\"own\" has no retain option", [&] { saver.set_retain({"w", "own"}, true); });
    cycle(3);
    CHECK(machine.driver.host_bytes() == 0); // nor "w"
    (void)saver.pause();
    saver.set_retain(Tags::all(), true); // while it is paused; "own" is not named
    (void)saver.resume();
    CHECK(row_of(saver, "w").backed_up_bytes == 8_MiB);
    CHECK_NOTHROW((void)saver.arena("w", HostBackup{.threads = 1})); // the policy is unchanged
    (void)saver.arena("z", Zero{});
    CHECK_THROWS_AS(saver.set_retain("z", true), Misuse);
    CHECK_THROWS_AS(saver.set_retain("unknown", true), Misuse);
}

TEST_CASE("drop: switched off, nothing of a dropped tag is left, nor are its addresses known") {
    MemorySaver saver{HostDriver{256_MiB}, {.enabled = false}};
    const auto kept = std::make_shared<int>(0); // held by the sink, which the tag's memory holds
    void* block = nullptr;
    {
        const Arena gone = saver.arena("gone", Discard{}, ArenaOptions{.events = [kept](const Event&) {}});
        block = gone.allocate(1_MiB);
        saver.drop("gone");
    }
    CHECK(kept.use_count() == 1);
    CHECK(saver.usage().devices()[0].used_bytes == 0);
    CHECK_FALSE(saver.owns(block));
    // The dropped tag must not be searched for blocks that get these addresses next.
    check_says<Misuse>("no tag of this saver contains this pointer", [&] { saver.deallocate(block); });
}

TEST_CASE_FIXTURE(OnSaver, "forget_backup: blocks that live on are saved by the next pause, whatever the policy") {
    ManualBackup own;
    own.copies->held = false;
    std::vector<NamedPolicy> policies = keepers();
    policies.push_back({"a program's own", own}); // never saves what was forgotten
    const NamedPolicy policy = each_of(policies);
    {
        Filled block{machine.driver, saver.arena("w", policy.policy), 3_MiB};
        for (std::uint64_t round = 1; round < 3; ++round) {
            block.write(round);
            CHECK(saver.pause("w").saved_bytes == 3_MiB);
            saver.forget_backup("w");
            CHECK(row_of(saver, "w").backed_up_bytes == 0);
            CHECK(saver.resume("w").restored_bytes == 0);
            CHECK_THROWS_AS((void)saver.backup_view(block.data(), 1), Misuse);
        }
        block.write(9);
        CHECK(saver.pause("w").saved_bytes == 3_MiB);
        CHECK(saver.resume("w").restored_bytes == 3_MiB);
        CHECK(block.whole());
    }
    CHECK(own.copies->forgotten().size() == (policy.name == "a program's own" ? 1 : 0)); // by the end of its buffer
}
} // namespace saver_drop_test
