// Resources of backups are freed whatever call fails: they are kept, reported, retried, and a failure at the end is
// thrown. Errors of backups name the tag.
#include "backup/backup_support.hpp"
#include "backup/file_source_support.hpp"
#include "support/each_of.hpp"

namespace saver_given_back_test {
using namespace test;
using D = MachineDriver;

std::size_t host_bytes(const D& driver) { return driver.host_bytes() + driver.pinned_bytes(); }

TEST_CASE_FIXTURE(OnSaver, "`close` throws if a backup cannot be freed, and can be repeated" * on_hosts) {
    std::vector<NamedPolicy> all = keepers();
    for (std::size_t i = all.size(); i-- > 0;) all.push_back({all[i].name + ", resumed", all[i].policy});
    const NamedPolicy keeper = each_of(all);
    (void)saver.arena("weights", keeper.policy).allocate(1_MiB);
    (void)saver.arena("beside", HostBackup{.threads = 1}).allocate(1_MiB);
    (void)saver.pause();
    if (keeper.name.ends_with("resumed")) (void)saver.resume();
    machine.driver.fail({.call = Call::unpin_host, .lasting = Lasting::onwards});
    for (int i = 0; i < 2; ++i) {
        const std::string text = text_of<DriverError>([&] { saver.close(); });
        CHECK((contains(text, "release a backup's storage") && contains(text, "tag \"")));
    }
    // Everything else has been released.
    CHECK(machine.driver.handle_bytes() + machine.driver.reserved_bytes() == 0);
    machine.driver.heal();
    saver.close();
    CHECK_MESSAGE(machine.driver.everything_given_back(), machine.driver.leaks());
}

TEST_CASE_FIXTURE(OnTold, "a slot of a single pause is kept until it has freed everything" * on_hosts) {
    const std::string end = each_of<std::string>({"resumed", "all freed", "the pause failed"});
    for (const Call call : {Call::unpin_host, Call::unmap_host}) {
        CAPTURE(call_name(call));
        const PauseOptions kept{.bytes = HostBackup{.threads = 1}};
        Filled block{machine.driver, saver.arena("cache"), 3_MiB}; // Discard keeps nothing
        if (end == "the pause failed") machine.driver.fail({.call = Call::copy_to_host});
        if (end != "the pause failed") (void)saver.pause(kept);
        if (end == "all freed") block.reset();
        machine.driver.fail({.call = call, .lasting = Lasting::onwards});
        if (end == "the pause failed") CHECK_THROWS_AS((void)saver.pause(kept), DriverError);
        if (end != "the pause failed") (void)saver.resume();
        if (end != "all freed") CHECK(block.whole());
        CHECK(host_bytes(machine.driver) != 0);
        CHECK(told.of(EventKind::ignored).size() == 1);
        machine.driver.heal();
        (void)saver.pause(); // any operation retries
        CHECK(host_bytes(machine.driver) == 0);
        told.clear();
    }
}

TEST_CASE_FIXTURE(OnSaver, "errors of backups name the tag" * on_hosts) {
    struct Case {
        const char* name; ///< a part of the text
        AnyPolicy policy;
        Call call;
        StatusKind kind = StatusKind::other;
    };
    const HostBackup pinned{.threads = 1};
    const StatusKind full = StatusKind::out_of_host_memory;
    const Case one = each_of<Case>({{"map host pages (tag \"cold\", 3.00 MiB)", pinned, Call::map_host, full},
                                    {"allocate host pages (tag \"cold\", ", pinned, Call::populate_host, full},
                                    {"save bytes (tag \"cold\", 3.00 MiB)", pinned, Call::copy_to_host},
                                    {"(tag \"cold\", 2.00 MiB)", pageable(), Call::populate_host, full},
                                    {"copy bytes (tag \"cold\", ", pageable(), Call::copy_to_host},
                                    {"open a backup file (tag \"cold\", in ", in_file(), Call::open_file},
                                    {"a backup file (tag \"cold\", 3.00 MiB in ", in_file(), Call::allocate_file},
                                    {"write bytes to the backup (tag \"cold\"", in_file(), Call::write_file},
                                    {"(tag \"cold\", 2.00 MiB) failed", in_file(), Call::map_host, full}});
    void* const block = saver.arena("cold", one.policy).allocate(3_MiB);
    machine.driver.fail({.call = one.call, .lasting = Lasting::onwards, .kind = one.kind});
    const std::string text = text_of<Error>([&] { (void)saver.pause(); });
    for (const char* const part : {one.name, "injected"}) CHECK_MESSAGE(contains(text, part), text);
    CHECK_MESSAGE(!contains(text, "at 0x0"), text);
    machine.driver.heal();
    check_says<Misuse>("backup_view(" + format_address(address_of(block)) +
                           ", 10 B) in tag \"cold\": this block has no complete backup",
                       [&] { (void)saver.backup_view(block, 10); });
    (void)saver.pause();
    machine.driver.fail({.call = Call::copy_to_device, .lasting = Lasting::onwards});
    check_says<DriverError>("tag \"cold\"", [&] { (void)saver.resume(); });
    machine.driver.heal();
}

TEST_CASE_FIXTURE(OnHost,
                  "no page is released under copies of a save ahead, or of a load, that nobody could wait for") {
    const std::string how = each_of<std::string>({"load, pause", "load, trim", "save, pause", "save, trim"});
    const bool loads = how.starts_with("load");
    const ModelFiles files;
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("a", loads ? AnyPolicy{FileSource{.threads = 1}}
                                               : AnyPolicy{HostBackup{.refresh = Refresh::once, .threads = 1}});
    void* const block = arena.allocate(4_MiB);
    const std::string path = files.put("source", ModelFiles::Bytes(4_MiB, 'x'));
    CHECK(host_of(machine.driver).stall_copies(200ms).ok());
    const Arrival saved = loads ? Arrival{} : saver.save("a", {.order = already_idle});
    for (const Call call : {Call::wait, Call::query, Call::drain})
        machine.driver.fail({.call = call, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(loads ? arena.load(block, 4_MiB, path, 0) : saved.wait(), DriverError);
    machine.driver.heal();
    if (how.ends_with("pause")) {
        (void)saver.pause("a", {.order = already_idle, .bytes = Discard{}});
    } else {
        arena.deallocate(block, already_idle);
        CHECK(saver.trim("a", {.order = already_idle}).released_bytes != 0);
    }
    CHECK(host_of(machine.driver).violations().empty());
}
} // namespace saver_given_back_test
