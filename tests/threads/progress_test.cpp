// Operations do not wait for each other unnecessarily: one thread blocks inside a driver call of an operation, and the
// others make progress. No timeouts: a failure hangs.
#include "support/machines.hpp"

namespace threads_progress_test {
using namespace test;
using D = MachineDriver;
using Saver = MemorySaver<D>;

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
    const Policy in_file = FileBackup{.directory = "/tmp", .threads = 1, .ring_bytes = 4_MiB};
    const Policy pinned_anew = HostBackup{.retain = false, .threads = 1};
    const Policy pageable_anew =
        HostBackup{.storage = Storage::pageable, .retain = false, .threads = 1, .ring_bytes = 4_MiB};
    struct Where {
        const char* name;
        Policy policy;
        Act before;
        Act act;
        std::vector<Call> calls;
    };
    using enum Call;
    const Where places[] = {
        {"pause, zero", zero, nothing, pause, {record_device, wait, unmap, release}},
        {"resume, zero", zero, pause, resume, {create, map, allow_access, fill, wait}},
        {"pause, pinned", pinned, nothing, pause, {host_available, map_host, populate_host, pin_host, copy_to_host}},
        {"pause, prepared", pinned, prepare, pause, {copy_to_host, record, wait}},
        {"pause, pageable", pageable, nothing, pause, {map_host, pin_host, copy_to_host}},
        {"pause, file", in_file, nothing, pause, {allocate_file, copy_to_host, write_file}},
        {"resume, pinned", pinned, pause, resume, {copy_to_device, wait}},
        {"resume, pageable", pageable, pause, resume, {copy_to_device}},
        {"resume, file", in_file, pause, resume, {read_file, copy_to_device}},
        {"resume, pinned, not retained", pinned_anew, pause, resume, {unpin_host}},
        {"resume, pageable, not retained", pageable_anew, pause, resume, {unmap_host}},
        {"prepare, pinned", pinned, nothing, prepare, {host_available, map_host, populate_host, pin_host}},
        {"prepare, pageable", pageable, nothing, prepare, {map_host, populate_host, pin_host}},
        {"prepare, file", in_file, nothing, prepare, {allocate_file}},
        {"backup_view, file", in_file, pause, look, {read_file}},
        {"trim", pinned, nothing, trim, {record_device, wait, unmap, release}},
        {"trim, all", pinned, nothing, trim_all, {record_device, wait, unmap, release}},
    };
    for (const Where& where : places) {
        for (const Call call : where.calls) {
            CAPTURE(std::string{where.name} + ": " + call_name(call));
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
