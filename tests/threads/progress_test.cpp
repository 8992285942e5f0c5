// Operations do not wait for each other unnecessarily: one thread blocks inside a driver call of an operation, and the
// others make progress. No timeouts: a failure hangs.
#include "support/machines.hpp"

namespace threads_progress_test {
using namespace test;
using D = MachineDriver;
using Saver = MemorySaver<D>;

std::string directory() { return std::filesystem::temp_directory_path().string(); }

/// Allocates blocks of a few sizes, small and large, in the order in which `use` frees them.
std::vector<void*> some_blocks(const Arena& arena) {
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) {
        for (const std::size_t bytes : {std::size_t{100}, std::size_t{70'000}, 3_MiB})
            blocks.push_back(arena.allocate(bytes));
    }
    return blocks;
}

/// Allocates and frees in every way, from an arena whose `old` blocks may be busy.
void use(Saver& saver, const Arena& arena, std::vector<void*>& old) {
    const OwnStream stream{saver.driver()};
    std::vector<void*> fresh = some_blocks(arena);
    void* const large = arena.allocate(6_MiB); // grows
    write_pattern(saver.driver(), large, 1_MiB, 1);
    CHECK(has_pattern(saver.driver(), large, 1_MiB, 1));
    fresh.push_back(large);
    {
        const auto region = saver.region(arena.tag());
        fresh.push_back(saver.allocate(5000));
        const Buffer<int> buffer{region, 1000};
    }
    for (auto* blocks : {&fresh, &old}) {
        for (std::size_t i = 0; i < blocks->size(); ++i) {
            void* const block = (*blocks)[i];
            if (i % 3 == 0) saver.deallocate(block);
            if (i % 3 == 1) saver.deallocate(block, stream);
            if (i % 3 == 2) saver.deallocate(block, already_idle);
        }
        blocks->clear();
    }
    (void)arena.usage();
    (void)saver.usage();
    (void)saver.bytes_to_resume();
}

TEST_CASE("wherever an operation blocks, threads allocate and free in all tags, and other tags move" * on_hosts) {
    using Policy = AnyPolicy;
    using Act = void (*)(Saver&, void*);
    const Act nothing = [](Saver&, void*) {};
    const Act pause = [](Saver& saver, void*) { (void)saver.pause("busy"); };
    const Act resume = [](Saver& saver, void*) { (void)saver.resume("busy"); };
    const Act prepare = [](Saver& saver, void*) { saver.prepare("busy"); };
    const Act trim = [](Saver& saver, void*) { (void)saver.trim("busy"); };
    const Act trim_all = [](Saver& saver, void*) { (void)saver.trim(); };
    const Act look = [](Saver& saver, void* kept) {
        const BackupView view = saver.backup_view(kept, 2_MiB); // its store is used for nothing else meanwhile
        CHECK(std::memcmp(view.data(), pattern(2_MiB, 1).data(), 2_MiB) == 0);
    };
    const Policy zero = Zero{};
    const Policy pinned = HostBackup{.threads = 1};
    const Policy pageable = HostBackup{.storage = Storage::pageable, .threads = 1, .ring_bytes = 4_MiB};
    const Policy in_file = FileBackup{.directory = directory(), .threads = 1, .ring_bytes = 4_MiB};
    struct Where {
        const char* name;
        Policy policy;
        Act before;
        Act act;
        std::vector<Call> calls;
    };
    const Where places[] = {
        {"pause, zero", zero, nothing, pause, {Call::record_device, Call::wait, Call::unmap, Call::release}},
        {"resume, zero", zero, pause, resume, {Call::create, Call::map, Call::allow_access, Call::fill, Call::wait}},
        {"pause, pinned",
         pinned,
         nothing,
         pause,
         {Call::host_available, Call::map_host, Call::populate_host, Call::pin_host, Call::copy_to_host}},
        {"pause, prepared", pinned, prepare, pause, {Call::copy_to_host, Call::record, Call::wait}},
        {"pause, pageable", pageable, nothing, pause, {Call::map_host, Call::pin_host, Call::copy_to_host}},
        {"pause, file", in_file, nothing, pause, {Call::allocate_file, Call::copy_to_host, Call::write_file}},
        {"resume, pinned", pinned, pause, resume, {Call::copy_to_device, Call::wait}},
        {"resume, pageable", pageable, pause, resume, {Call::copy_to_device}},
        {"resume, file", in_file, pause, resume, {Call::read_file, Call::copy_to_device}},
        {"prepare, pinned",
         pinned,
         nothing,
         prepare,
         {Call::host_available, Call::map_host, Call::populate_host, Call::pin_host}},
        {"prepare, pageable", pageable, nothing, prepare, {Call::map_host, Call::populate_host, Call::pin_host}},
        {"prepare, file", in_file, nothing, prepare, {Call::allocate_file}},
        {"backup_view, file", in_file, pause, look, {Call::read_file}},
        {"trim", pinned, nothing, trim, {Call::record_device, Call::wait, Call::unmap, Call::release}},
        {"trim, all", pinned, nothing, trim_all, {Call::record_device, Call::wait, Call::unmap, Call::release}},
    };
    for (const Where& where : places) {
        for (const Call call : where.calls) {
            CAPTURE(std::string{where.name});
            CAPTURE(std::string{call_name(call)});
            const Checked machine;
            Saver saver{machine.driver};
            const Arena busy = saver.arena("busy", where.policy);
            const Arena other = saver.arena("other", where.policy);
            std::vector<void*> busy_blocks = some_blocks(busy);
            std::vector<void*> other_blocks = some_blocks(other);
            void* const kept = busy.allocate(2_MiB);
            write_pattern(machine.driver, kept, 2_MiB, 1);
            where.before(saver, kept);
            busy.deallocate(busy.allocate(8_MiB), already_idle); // for a trim to release
            {
                Stuck stuck{machine.driver, call, [&] { where.act(saver, kept); }, Whose::anybodys};
                Doing second{[&] { use(saver, other, other_blocks); }};
                use(saver, busy, busy_blocks);
                second.join();
                if (where.policy == zero) { // complete operations of other tags
                    void* const block = other.allocate(3_MiB);
                    CHECK(saver.pause("other").released_bytes != 0);
                    CHECK(saver.resume("other").mapped_bytes != 0);
                    CHECK(all_are(machine.driver, block, 3_MiB, 0));
                    saver.deallocate(block, already_idle);
                    (void)saver.trim("other");
                    CHECK(saver.arena("new", Zero{}).allocate(1_MiB) != nullptr);
                }
                CHECK(!stuck.over());
                stuck.go_on();
            }
            CHECK(busy.usage().blocks == 1);
            CHECK(other.usage().blocks == 0);
            (void)saver.resume();
            const bool kept_bytes = !(where.policy == zero);
            CHECK((kept_bytes ? has_pattern(machine.driver, kept, 2_MiB, 1) : all_are(machine.driver, kept, 2_MiB, 0)));
            check_books(saver, machine.driver);
        }
    }
}

TEST_CASE("freeing host memory and disk space does not hold up allocations" * on_hosts) {
    HostBackup pageable{.storage = Storage::pageable, .threads = 1, .ring_bytes = 4_MiB};
    const FileBackup in_file{.directory = directory(), .threads = 1, .ring_bytes = 4_MiB};
    HostBackup pinned{.threads = 1};
    /// Uses the arena while `act` is stuck in a call.
    const auto meanwhile = [](const Checked& machine, Saver& saver, const Arena& arena, std::vector<void*> blocks,
                              Call call, const std::function<void()>& act) {
        CAPTURE(call_name(call));
        Stuck stuck{machine.driver, call, act};
        use(saver, arena, blocks);
        CHECK(!stuck.over());
        stuck.go_on();
    };
    struct Where {
        AnyPolicy policy;
        Call call;
    };
    SUBCASE("of freed blocks, by the next pause") {
        for (const Where& where : {Where{pinned, Call::unpin_host}, Where{pinned, Call::unmap_host},
                                   Where{pageable, Call::unmap_host}, Where{in_file, Call::punch_file}}) {
            const Checked machine;
            Saver saver{machine.driver};
            const Arena arena = saver.arena("busy", where.policy);
            void* const freed = arena.allocate(6_MiB); // whole host pages: no other block shares them
            pause_and_resume(saver, "busy");
            std::vector<void*> blocks = some_blocks(arena);
            void* const kept = arena.allocate(2_MiB);
            write_pattern(machine.driver, kept, 2_MiB, 1);
            pause_and_resume(saver, "busy");
            arena.deallocate(freed); // everything that the first pause reserved space for
            meanwhile(machine, saver, arena, std::move(blocks), where.call, [&] { (void)saver.pause("busy"); });
            (void)saver.resume();
            CHECK(has_pattern(machine.driver, kept, 2_MiB, 1));
        }
    }
    SUBCASE("of everything, by the resume") {
        pinned.retain = false;
        pageable.retain = false;
        for (const Where& where : {Where{pinned, Call::unpin_host}, Where{pageable, Call::unmap_host}}) {
            const Checked machine;
            Saver saver{machine.driver};
            const Arena arena = saver.arena("busy", where.policy);
            std::vector<void*> blocks = some_blocks(arena);
            (void)saver.pause("busy");
            meanwhile(machine, saver, arena, std::move(blocks), where.call, [&] { (void)saver.resume("busy"); });
        }
    }
    SUBCASE("of one pause's own policy") {
        for (const bool all_freed : {false, true}) {
            const Checked machine;
            Saver saver{machine.driver};
            const Arena arena = saver.arena("busy");
            void* const block = arena.allocate(5_MiB);
            (void)saver.pause("busy", {.bytes = pinned});
            if (all_freed) arena.deallocate(block); // nothing is left to restore
            meanwhile(machine, saver, arena, some_blocks(arena), Call::unpin_host, [&] { (void)saver.resume("busy"); });
        }
    }
}

TEST_CASE_FIXTURE(OnMachine, "who waits for freed memory does not hold up those who need not wait" * on_hosts) {
    Saver saver{machine.driver};
    const Arena busy = saver.arena("busy");
    const Arena unused = saver.arena("unused");
    void* const waits = busy.allocate(20_MiB);
    void* const idle = unused.allocate(20_MiB);
    const Ballast full{machine.driver, 0};
    busy.deallocate(waits);
    // The device's work may wait for this thread.
    Stuck stuck{machine.driver, Call::drain, [&] { (void)saver.arena("first").allocate(20_MiB); }};
    unused.deallocate(idle, already_idle);
    CHECK(saver.arena("second").allocate(10_MiB) != nullptr);
    CHECK(!stuck.over());
    stuck.go_on();
}

TEST_CASE_FIXTURE(OnMachine, "two threads that pause one tag take turns" * on_hosts) {
    Saver saver{machine.driver};
    void* const block = saver.arena("tag", Zero{}).allocate(20_MiB);
    const std::size_t mapped = machine.driver.handle_bytes();
    for (int i = 0; i < 5; ++i) {
        std::atomic<int> inside{0};
        std::atomic<int> most{0};
        Turnstile gate;
        machine.driver.on_call([&](const CallRecord& made) {
            if (made.call != Call::unmap && made.call != Call::release) return;
            if (const int now = ++inside; now > most) most = now;
            gate.pass();
            --inside;
        });
        Report reports[2];
        Threads pauses{2, [&](std::size_t t) { reports[t] = saver.pause("tag"); }};
        gate.await();
        gate.open();
        pauses.join();
        machine.driver.on_call({});
        CHECK(most == 1);
        CHECK(reports[0].released_bytes + reports[1].released_bytes == mapped);
        CHECK((reports[0].released_bytes == 0 || reports[1].released_bytes == 0)); // the second one found nothing to do
        Threads resumes{2, [&](std::size_t t) { reports[t] = saver.resume("tag"); }};
        resumes.join();
        CHECK(reports[0].mapped_bytes + reports[1].mapped_bytes == mapped);
        CHECK((reports[0].mapped_bytes == 0 || reports[1].mapped_bytes == 0));
        CHECK(all_are(machine.driver, block, 20_MiB, 0));
    }
}

TEST_CASE_FIXTURE(OnMachine, "a turn that is not free in time is NotIdle, and nothing has changed" * on_hosts) {
    Saver saver{machine.driver};
    const Arena free = saver.arena("free", Zero{});
    const Arena busy = saver.arena("busy", Zero{});
    void* const block = free.allocate(1_MiB);
    write_pattern(machine.driver, block, 1_MiB, 1);
    (void)busy.allocate(1_MiB);
    {
        Stuck stuck{machine.driver, Call::unmap, [&] { (void)saver.pause("busy"); }};
        const PauseOptions patience{.timeout = std::chrono::milliseconds{1}};
        const std::size_t mapped = free.usage().mapped_bytes;
        for (const Tags& tags : {Tags{"busy"}, Tags{"free", "busy"}}) {
            CHECK_THROWS_WITH_AS((void)saver.pause(tags, patience),
                                 "tag \"busy\" was still being paused when the timeout expired; "
                                 "nothing has changed",
                                 NotIdle);
        }
        CHECK_THROWS_AS((void)saver.pause(patience), NotIdle);
        CHECK_THROWS_AS((void)saver.trim("busy", {.timeout = std::chrono::milliseconds{1}}), NotIdle);
        CHECK_THROWS_AS((void)saver.pause("busy", {.timeout = std::chrono::nanoseconds{0}}), NotIdle);
        CHECK(free.usage().state == "active");
        CHECK(has_pattern(machine.driver, block, 1_MiB, 1));
        free.deallocate(free.allocate(100'000), already_idle); // works as before, from existing memory
        CHECK(free.usage().mapped_bytes == mapped);
        stuck.go_on();
    }
    (void)saver.pause({"free", "busy"}, {.timeout = std::chrono::minutes{10}});
    CHECK(machine.driver.handle_bytes() == 0);
}

TEST_CASE_FIXTURE(OnMachine, "tags named in any order do not lock each other out" * on_hosts) {
    Saver saver{machine.driver};
    for (const char* tag : {"a", "b", "c"}) (void)saver.arena(tag).allocate(1_MiB);
    Doing forwards{[&] {
        for (int i = 0; i < 30; ++i) {
            (void)saver.pause({"a", "b", "c"});
            (void)saver.resume({"b", "a"});
        }
    }};
    Doing backwards{[&] {
        for (int i = 0; i < 30; ++i) {
            (void)saver.pause({"c", "b", "a"});
            (void)saver.resume({"c", "a"});
        }
    }};
    for (int i = 0; i < 30; ++i) {
        (void)saver.resume();
        (void)saver.trim();
    }
    forwards.join();
    backwards.join();
}

TEST_CASE("a device whose pause blocks does not hold up another" * on_hosts) {
    const Checked zero{0};
    const Checked one{1};
    Saver saver{zero.driver};
    (void)saver.arena("both", Zero{}).allocate(2_MiB);
    void* const there = saver.arena("both", Zero{}, one.driver).allocate(2_MiB);
    (void)saver.arena("here", Zero{}).allocate(2_MiB);
    const Arena elsewhere = saver.arena("elsewhere", Zero{}, one.driver);
    void* const block = elsewhere.allocate(2_MiB);

    SUBCASE("nor one that another thread pauses") {
        Stuck stuck{zero.driver, Call::unmap, [&] { (void)saver.pause("here"); }};
        CHECK(saver.pause("elsewhere").released_bytes == 2_MiB);
        CHECK(saver.resume("elsewhere").mapped_bytes == 2_MiB);
        CHECK(all_are(one.driver, block, 2_MiB, 0));
        elsewhere.deallocate(elsewhere.allocate(20_MiB));
        (void)saver.trim("elsewhere");
        CHECK(!stuck.over());
        stuck.go_on();
    }
    SUBCASE("nor one that the same call pauses, and resumes") {
        Turnstile released;
        one.driver.on_call([&](const CallRecord& made) {
            if (made.call == Call::release) released.pass();
        });
        released.open();
        Report report;
        {
            Stuck stuck{zero.driver, Call::unmap, [&] { report = saver.pause("both"); }};
            released.await(); // device 1 proceeds independently
            stuck.go_on();
        }
        one.driver.on_call({});
        CHECK(report.tags.size() == 2);
        CHECK(report.released_bytes == 4_MiB);
        Turnstile mapped;
        one.driver.on_call([&](const CallRecord& made) {
            if (made.call == Call::allow_access) mapped.pass();
        });
        mapped.open();
        {
            Stuck stuck{zero.driver, Call::map, [&] { report = saver.resume("both"); }};
            mapped.await();
            stuck.go_on();
        }
        one.driver.on_call({});
        CHECK(report.mapped_bytes == 4_MiB);
        CHECK(all_are(one.driver, there, 2_MiB, 0));
    }
}
} // namespace threads_progress_test
