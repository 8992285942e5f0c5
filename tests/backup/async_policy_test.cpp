// Asynchronous backups: a policy whose tickets complete when the test allows it, and what may happen while a ticket is
// incomplete.
#include "memsaver/arena/arena.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

namespace backup_async_policy_test {
using namespace test;
using D = MachineDriver;
using Core = ArenaCore;
using Manual = TaggedArena<D, ManualBackup>;

PauseStep begin_pause(Core& core) { return {core, core.take_turn(), std::nullopt}; }
ResumeStep begin_resume(Core& core) { return {core, core.take_turn()}; }

/// Counts unmaps, and unmaps during an incomplete save of their bytes.
struct UnmapWatch {
    UnmapWatch(const D& driver, std::shared_ptr<ManualCopies> copies) : driver_{driver} {
        driver_.on_call([this, copies = std::move(copies)](const CallRecord& made) {
            if (made.call != Call::unmap) return;
            ++unmaps;
            if (copies->under_way(Way::out, made.address, made.bytes)) ++early;
        });
    }
    ~UnmapWatch() { driver_.on_call({}); }

    std::atomic<int> unmaps{0};
    std::atomic<int> early{0};

private:
    D driver_;
};

TEST_CASE_FIXTURE(OnSaver, "a saver pauses one tag on a thread while it resumes another on the next" * on_hosts) {
    const ManualBackup leaving;
    const ManualBackup coming;
    const Arena first = saver.arena("leaving", leaving);
    const Arena second = saver.arena("coming", coming);
    void* const a = first.allocate(3_MiB);
    void* const b = second.allocate(3_MiB);
    write_pattern(machine.driver, a, 3_MiB, 1);
    write_pattern(machine.driver, b, 3_MiB, 2);
    coming.copies->held = false;
    (void)saver.pause("coming");
    coming.copies->held = true;

    Report paused;
    Report resumed;
    std::optional<Doing> pausing;
    std::optional<Doing> resuming;
    const auto pause_with = [&](const Order& order) {
        pausing.emplace([&, order] { paused = saver.pause("leaving", {.order = order}); });
        leaving.copies->await(Way::out, 1);
    };
    const auto resume_too = [&] {
        resuming.emplace([&] { resumed = saver.resume("coming"); });
        coming.copies->await(Way::back, 1);
    };
    bool save_first = false;
    SUBCASE("the pause begins first") {
        pause_with({});
        resume_too();
    }
    SUBCASE("the pause begins and ends first") {
        pause_with({});
        resume_too();
        save_first = true;
    }
    SUBCASE("the resume begins first: by default a pause would wait for its copies, as for all the device's work") {
        resume_too();
        pause_with(already_idle);
    }
    Doing& pause = *pausing; // both run concurrently
    Doing& resume = *resuming;
    CHECK(!pause.over());
    CHECK(!resume.over());
    if (save_first) {
        leaving.copies->finish();
        pause.join();
        CHECK(!resume.over());
    }
    coming.copies->finish();
    resume.join();
    CHECK(pause.over() == save_first);
    CHECK(resumed.restored_bytes == 3_MiB);
    CHECK(has_pattern(machine.driver, b, 3_MiB, 2));
    if (!save_first) {
        leaving.copies->finish();
        pause.join();
    }
    CHECK(paused.saved_bytes == 3_MiB);
    CHECK(row_of(saver, "leaving").backed_up_bytes == 3_MiB);
    leaving.copies->held = false;
    (void)saver.resume();
    CHECK(has_pattern(machine.driver, a, 3_MiB, 1));
}

TEST_CASE_FIXTURE(OnMachine, "no page is unmapped before its saves are complete" * on_hosts) {
    const ManualBackup policy;
    Manual arena{machine.driver, "saving", policy};
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < 6; ++i) { // several extents
        blocks.push_back(arena.allocate(3_MiB));
        write_pattern(machine.driver, blocks.back(), 3_MiB, i);
    }
    const UnmapWatch watch{machine.driver, policy.copies};
    Report report;
    Doing pause{[&] { report = arena.pause(); }};
    policy.copies->await(Way::out, blocks.size());
    for (const auto at : {std::size_t{5}, std::size_t{0}, std::size_t{2}, std::size_t{1}, std::size_t{4}}) {
        policy.copies->finish(blocks[at]);
        CHECK(watch.unmaps == 0);
        CHECK(!pause.over());
        CHECK(has_pattern(machine.driver, blocks[3], 3_MiB, 3)); // still readable
    }
    policy.copies->finish(blocks[3]);
    pause.join();
    CHECK(watch.unmaps > 0);
    CHECK(watch.early == 0);
    CHECK(report.saved_bytes == 18_MiB);
    CHECK(machine.driver.handle_bytes() == 0);
    policy.copies->held = false;
    (void)arena.resume();
    for (std::uint64_t i = 0; i < 6; ++i) CHECK(has_pattern(machine.driver, blocks[i], 3_MiB, i));
}

TEST_CASE_FIXTURE(OnMachine, "a step that is abandoned waits for its copies before it releases the memory" * on_hosts) {
    const ManualBackup policy;
    Manual arena{machine.driver, "given up", policy};
    void* const block = arena.allocate(1_MiB);
    write_pattern(machine.driver, block, 1_MiB, 1);
    const auto give_up = [&](auto step) { // destroyed at the end
        Doing drop{[&] { auto dying = std::move(step); }};
        CHECK(!drop.over());
        policy.copies->finish();
        drop.join();
    };
    {
        std::unique_ptr<PauseStep> pause{new PauseStep{begin_pause(arena.core())}};
        pause->enqueue();
        give_up(std::move(pause));
    }
    CHECK(arena.usage().state == "active");
    CHECK(has_pattern(machine.driver, block, 1_MiB, 1));
    policy.copies->held = false;
    (void)arena.pause();
    policy.copies->held = true;
    {
        ResumeStep resume = begin_resume(arena.core());
        resume.create();
        resume.map();
        resume.enqueue();
        give_up(std::move(resume));
    }
    CHECK(arena.usage().state == "paused");
    CHECK(machine.driver.handle_bytes() == 0);
    policy.copies->held = false;
    (void)arena.resume();
    CHECK(has_pattern(machine.driver, block, 1_MiB, 1));
}

TEST_CASE_FIXTURE(OnMachine, "blocks freed in a busy extent become free afterwards, and are not restored" * on_hosts) {
    const ManualBackup policy;
    Manual arena{machine.driver, "queued", policy, {.reserve = 8_MiB}}; // one extent
    OwnedStream stream;
    REQUIRE(stream.open(machine.driver).ok());
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < 4; ++i) {
        blocks.push_back(arena.allocate(2_MiB));
        write_pattern(machine.driver, blocks.back(), 2_MiB, i);
    }
    const auto free_three = [&] {
        arena.deallocate(blocks[0]);
        arena.deallocate(blocks[1], stream.get());
        arena.deallocate(blocks[2], already_idle);
        CHECK(arena.usage().blocks == 1);
        for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(arena.deallocate(blocks[static_cast<std::size_t>(i)]), Misuse);
    };
    const auto not_one_of_them = [&](void* block) {
        return std::find(blocks.begin(), blocks.end(), block) == blocks.end();
    };

    SUBCASE("of a pause") {
        Doing pause{[&] { (void)arena.pause(); }};
        policy.copies->await(Way::out, 4);
        free_three();
        for (int i = 0; i < 4; ++i) CHECK(not_one_of_them(arena.allocate(2_MiB)));
        policy.copies->finish();
        pause.join();
        CHECK(policy.copies->forgotten().size() == 3);
        policy.copies->held = false;
        (void)arena.resume();
        CHECK(policy.copies->seen(Way::back).size() == 1);
        CHECK(policy.copies->seen(Way::back).front().address == address_of(blocks[3]));
    }
    SUBCASE("of a pause that fails: they wait for the device as any other") {
        Doing pause{[&] { CHECK_THROWS_AS((void)arena.pause(), DriverError); }};
        policy.copies->await(Way::out, 4);
        free_three();
        policy.copies->fails = true;
        policy.copies->finish();
        pause.join();
        policy.copies->fails = false;
        CHECK(arena.usage().blocks == 1);
        CHECK(arena.usage().state == "active");
    }
    SUBCASE("of a resume") {
        policy.copies->held = false;
        (void)arena.pause();
        policy.copies->held = true;
        Doing resume{[&] { (void)arena.resume(); }};
        policy.copies->await(Way::back, 4);
        free_three();
        for (int i = 0; i < 4; ++i) CHECK(not_one_of_them(arena.allocate(2_MiB)));
        policy.copies->finish();
        resume.join();
    }
    CHECK(has_pattern(machine.driver, blocks[3], 2_MiB, 3));
    // Now their memory is reused, or released to the device.
    (void)arena.trim();
    bool reused = false;
    for (int i = 0; i < 16 && !reused; ++i) reused = arena.allocate(2_MiB) == blocks[2];
    unsigned char byte = 0;
    const bool mapped = machine.driver.inner().copy_to_host(&byte, address_of(blocks[2]), 1, stream.get()).ok();
    CHECK(reused == mapped);
    CHECK(machine.driver.drain().ok());
}

TEST_CASE_FIXTURE(
    OnSaver,
    "a save that fails in one of several tags changes none of them; a restore, only those that its report names" *
        on_hosts) {
    const ManualBackup good;
    const ManualBackup bad;
    good.copies->held = bad.copies->held = false;
    void* const a = saver.arena("good", good).allocate(2_MiB);
    void* const b = saver.arena("bad", bad).allocate(1_MiB);
    write_pattern(machine.driver, a, 2_MiB, 1);
    write_pattern(machine.driver, b, 1_MiB, 2);
    const std::size_t mapped = machine.driver.handle_bytes();
    for (std::atomic<bool>* failure : {&bad.copies->throws, &bad.copies->fails}) {
        const UnmapWatch watch{machine.driver, bad.copies};
        *failure = true;
        for (int i = 0; i < 2; ++i) CHECK_THROWS_AS((void)saver.pause(), DriverError);
        *failure = false;
        CHECK(watch.unmaps == 0);
        CHECK(machine.driver.handle_bytes() == mapped);
        for (const char* tag : {"good", "bad"}) {
            CHECK(row_of(saver, tag).state == "active");
            CHECK(row_of(saver, tag).paused_bytes == 0);
        }
        CHECK(has_pattern(machine.driver, a, 2_MiB, 1));
        CHECK(has_pattern(machine.driver, b, 1_MiB, 2));
        const Arena arena = saver.arena("bad", bad);
        arena.deallocate(arena.allocate(1000), already_idle); // the existing memory is usable again
        CHECK(machine.driver.handle_bytes() == mapped);
    }
    (void)saver.pause();
    CHECK(machine.driver.handle_bytes() == 0);
    for (std::atomic<bool>* failure : {&bad.copies->throws, &bad.copies->fails}) {
        *failure = true;
        bool good_is_back = false;
        try {
            (void)saver.resume();
            FAIL_CHECK("nothing was thrown");
        } catch (const DriverError& error) {
            for (const TagReport& row : error.report().tags) good_is_back = good_is_back || row.tag == "good";
        }
        *failure = false;
        CHECK(bad.copies->resumed == 0);
        CHECK(row_of(saver, "bad").state == "paused");
        CHECK(row_of(saver, "bad").backed_up_bytes == 1_MiB);
        CHECK(row_of(saver, "good").state == (good_is_back ? "active" : "paused"));
        CHECK(machine.driver.handle_bytes() == row_of(saver, "good").mapped_bytes);
    }
    (void)saver.resume();
    CHECK(bad.copies->resumed == 1);
    CHECK(has_pattern(machine.driver, a, 2_MiB, 1));
    CHECK(has_pattern(machine.driver, b, 1_MiB, 2));
}

TEST_CASE_FIXTURE(OnMachine, "memory paused in several batches is restored from each one's slot" * on_hosts) {
    const ManualBackup own;
    const ManualBackup once;
    own.copies->held = once.copies->held = false;
    Manual arena{machine.driver, "batches", own};
    void* const first = arena.allocate(3_MiB);
    void* const small = arena.allocate(768);
    write_pattern(machine.driver, first, 3_MiB, 1);
    write_pattern(machine.driver, small, 768, 2);
    CHECK(arena.pause().saved_bytes == 3_MiB + 768);
    void* const second = arena.allocate(2_MiB);
    void* const given_up = arena.allocate(2_MiB);
    write_pattern(machine.driver, second, 2_MiB, 3);
    CHECK(arena.pause({.bytes = once}).saved_bytes == 4_MiB); // only of the rest
    CHECK(own.copies->invalidated == 1);                      // its backup of the rest is stale
    arena.deallocate(given_up);                               // its backup is dropped too, wherever it is
    CHECK(once.copies->forgotten().size() == 1);
    void* const third = arena.allocate(2_MiB);
    write_pattern(machine.driver, third, 2_MiB, 4);
    CHECK(arena.pause().saved_bytes == 2_MiB);
    void* const fourth = arena.allocate(2_MiB);
    (void)arena.pause({.bytes = Discard{.poison = static_cast<unsigned char>(0x5A)}});
    CHECK(arena.pause().released_bytes == 0);
    CHECK(arena.usage().state == "paused");
    CHECK(own.copies->seen(Way::out).size() == 3);
    CHECK(once.copies->seen(Way::out).size() == 2);

    once.copies->fails = true; // one of them fails: none is consumed
    CHECK_THROWS_AS((void)arena.resume(), DriverError);
    CHECK(arena.usage().state == "paused");
    once.copies->fails = false;

    (void)arena.resume();
    CHECK(arena.usage().state == "active");
    CHECK(has_pattern(machine.driver, first, 3_MiB, 1));
    CHECK(has_pattern(machine.driver, small, 768, 2));
    CHECK(has_pattern(machine.driver, second, 2_MiB, 3));
    CHECK(has_pattern(machine.driver, third, 2_MiB, 4));
    CHECK(all_are(machine.driver, fourth, 2_MiB, 0x5A));
}

TEST_CASE_FIXTURE(OnMachine, "blocks freed while paused are forgotten, and no serial number is used twice" * on_hosts) {
    const ManualBackup policy;
    policy.copies->held = false;
    Manual arena{machine.driver, "serials", policy};
    std::set<std::uint64_t> serials;
    std::set<void*> addresses;
    std::size_t blocks_made = 0;
    void* const keeper = arena.allocate(2_MiB);
    for (std::size_t cycle = 1; cycle <= 5; ++cycle) {
        std::vector<void*> blocks;
        for (const std::size_t bytes : {std::size_t{500}, std::size_t{500}, std::size_t{200'000}, 2_MiB}) {
            blocks.push_back(arena.allocate(bytes));
            addresses.insert(blocks.back());
            ++blocks_made;
        }
        const std::size_t saved_before = policy.copies->seen(Way::out).size();
        (void)arena.pause();
        const auto saved = policy.copies->seen(Way::out);
        CHECK(saved.size() == saved_before + 5);
        for (std::size_t i = saved_before; i < saved.size(); ++i) {
            if (saved[i].address != address_of(keeper)) CHECK(serials.insert(saved[i].serial).second);
        }
        const std::size_t forgotten = policy.copies->forgotten().size();
        for (void* const block : blocks) arena.deallocate(block);
        CHECK(policy.copies->forgotten().size() == forgotten + 4);
        CHECK(arena.usage().backed_up_bytes == 2_MiB);
        const std::size_t restored = policy.copies->seen(Way::back).size();
        (void)arena.resume();
        CHECK(policy.copies->seen(Way::back).size() == restored + 1);
        CHECK(policy.copies->seen(Way::back).back().address == address_of(keeper));
    }
    CHECK(serials.size() == blocks_made);
    CHECK(addresses.size() < blocks_made); // although addresses were
}
} // namespace backup_async_policy_test
