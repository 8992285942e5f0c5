// Exchanges: which pages are handed over, which bytes are saved and restored, and the state after a failure.
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

namespace saver_exchange_test {
using namespace test;

constexpr std::size_t block = 16_MiB;

/// Filled blocks of a tag.
struct Tag {
    Tag(const MachineDriver& driver, const Arena& arena, std::size_t count, std::uint64_t seed) {
        for (std::size_t i = 0; i < count; ++i) blocks.emplace_back(driver, arena, block, seed + i);
    }
    [[nodiscard]] bool whole() const {
        return std::all_of(blocks.begin(), blocks.end(), [](const auto& each) { return each.whole(); });
    }

    std::vector<Filled<MachineDriver>> blocks;
};

/// Tag "a" is active, and "b" is paused.
struct OnPair : OnSaver {
    const Filled<MachineDriver> a{machine.driver, saver.arena("a", HostBackup{}), block, 1};
    const Filled<MachineDriver> b{machine.driver, saver.arena("b", HostBackup{}), block, 11};

    OnPair() { (void)saver.pause("b"); }
};

TEST_CASE_FIXTURE(OnSaver, "exchange: pages pass from tag to tag, and the bytes of both are right" * on_machines) {
    const std::vector<AnyPolicy> policies{HostBackup{},
                                          HostBackup{.refresh = Refresh::once},
                                          HostBackup{.storage = Storage::pageable},
                                          FileBackup{.directory = "/tmp"},
                                          Verified<HostBackup>{},
                                          HostBackup{}};
    for (std::size_t i = 0; i + 1 < policies.size(); ++i) {
        CAPTURE(policies[i].describe());
        const Filled a{machine.driver, saver.arena("a", policies[i]), block, 1};
        saver.pause("a");
        const Filled b{machine.driver, saver.arena("b", policies[i + 1]), block, 5};
        const std::size_t mapped = machine.driver.handle_bytes();
        for (int round = 0; round < 2; ++round) {
            Report report = saver.exchange("b", "a");
            CHECK(report.handed_bytes >= block);
            CHECK(report.restored_bytes == block);
            CHECK(machine.driver.handle_bytes() == mapped);
            CHECK(a.whole());
            report = saver.exchange("a", "b");
            CHECK(report.handed_bytes >= block);
            CHECK(b.whole());
        }
        check_books(saver, machine.driver);
        saver.drop({"a", "b"});
    }
}

TEST_CASE_FIXTURE(OnPair, "exchange: misuse changes nothing") {
    const auto refused = [&](const Tags& out, const Tags& in, const char* why) {
        check_says<Misuse>(why, [&] { saver.exchange(out, in); });
        CHECK(a.whole());
    };
    refused("a", "a", "tag \"a\" is in both lists");
    refused({"a", "b"}, "b", "tag \"b\" is in both lists");
    refused("c", "b", "c");
    refused("a", "c", "c");
    {
        const Hook hook = saver.before_pause([&](PauseEvent&) { refused("a", "b", "hook"); });
        saver.exchange("a", "b");
    }
    CHECK(b.whole());
}

TEST_CASE_FIXTURE(OnPair, "exchange: hooks of both, in order; one that throws before keeps all as it was") {
    std::string ran;
    bool refuse = true;
    const std::array hooks{
        saver.before_pause([&](PauseEvent& event) { ran += "p:" + event.tags.front() + ' '; }),
        saver.before_resume([&](ResumeEvent& event) {
            ran += "r:" + event.tags.front() + ' ';
            if (refuse) throw std::runtime_error{"not now"};
        }),
        saver.after_pause([&](PauseEvent& event) {
            ran += "P" + std::to_string(event.report.handed_bytes / block) + ' ';
            throw std::runtime_error{"after"};
        }),
        saver.after_resume(
            [&](ResumeEvent& event) { ran += "R" + std::to_string(event.report.restored_bytes / block); }),
    };
    CHECK_THROWS_WITH(saver.exchange("a", "b"), "not now");
    CHECK(a.whole());
    refuse = false;
    ran.clear();
    CHECK_THROWS_WITH(saver.exchange("a", "b"), "after");
    CHECK(ran == "p:a r:b P1 R1");
    CHECK(b.whole());
}

TEST_CASE("exchange: a timeout after an attempt that found no room says what that attempt did") {
    const MachineDriver driver{HostDriver{40_MiB}};
    const Arena* a = nullptr;
    std::optional<HeldStream> busy;
    MemorySaver saver{driver, {.on_no_room = [&](const NoRoom&) { // `a` has been paused
                          void* const more = a->allocate(1_MiB);
                          busy.emplace(driver);
                          CHECK(host_of(driver).fill(address_of(more), 1, 1_MiB, busy->get()).ok());
                          return true;
                      }}};
    const Buffer<char> b{saver.arena("b", HostBackup{.threads = 1}), 20_MiB};
    (void)saver.pause("b");
    const Arena out = saver.arena("a", HostBackup{.threads = 1});
    const Buffer<char> first{out, 32_MiB};
    a = &out;
    driver.fail({.call = Call::create, .nth = 2, .kind = StatusKind::out_of_memory});
    const auto error = thrown<NotIdle>([&] { saver.exchange("a", "b", {.timeout = std::chrono::milliseconds{20}}); });
    CHECK(error.report().saved_bytes == 32_MiB);
    CHECK(contains(error.what(), "nothing has changed since an earlier attempt, which the report shows"));
    busy.reset();
}

TEST_CASE("exchange: pages that cannot be handed over make room for new ones") {
    const Checked machine{HostDriver{64_MiB}};
    MemorySaver saver{machine.driver};
    const Tag many{machine.driver, saver.arena("many", HostBackup{}), 3, 1};
    saver.pause("many");
    const Filled one{machine.driver, saver.arena("one", HostBackup{}), 3 * block, 11};
    CHECK(saver.exchange("one", "many").handed_bytes == 3 * block); // adjacent ones are restored as one
    CHECK(many.whole());
    saver.exchange("many", "one");
    const Filled halves{machine.driver, saver.arena("halves", HostBackup{}), 8_MiB, 21};
    saver.pause("halves");
    const Report report = saver.exchange("one", "halves"); // 48 MiB do not fit into 8
    CHECK(report.handed_bytes == 0);
    CHECK(halves.whole());
    saver.exchange("halves", "one");
    CHECK(one.whole());
}

TEST_CASE_FIXTURE(OnSaver, "exchange: policies of the program's own, which know nothing of it") {
    const ManualBackup manual;
    ManualCopies& copies = *manual.copies;
    copies.held = false;
    const Tag a{machine.driver, saver.arena("a", manual), 2, 1};
    const Tag c{machine.driver, saver.arena("c", HostBackup{}), 2, 11};
    saver.pause("c");
    const auto refused = [&](std::atomic<bool>& how, const char* out, const char* in) {
        how = true;
        CHECK_THROWS_AS(saver.exchange(out, in), Error);
        how = false;
    };
    CHECK(saver.exchange("a", "c").handed_bytes == 2 * block);
    CHECK(c.whole());
    CHECK(saver.exchange("c", "a").handed_bytes == 2 * block);
    CHECK(a.whole());

    refused(copies.fails, "a", "c"); // its ticket fails: nothing was handed over
    CHECK(a.whole());
    refused(copies.throws, "a", "c");
    CHECK(a.whole());
    saver.exchange("a", "c");
    CHECK(c.whole());
    refused(copies.throws, "c", "a"); // now it cannot be restored: it stays paused, and the other one may be paused
    saver.exchange("c", "a");
    CHECK(a.whole());
    saver.exchange("a", "c");
    CHECK(c.whole());
}

TEST_CASE("exchange: a handle that is larger than any that the incoming tag would create is handed over whole") {
    constexpr std::size_t large = 1_GiB + 16_MiB; // only touched in a few places
    MemorySaver saver{HostDriver{large + 16_MiB}};
    const Arena out = saver.arena("out", Discard{}, ArenaOptions{.single_handle = true});
    const Arena in = saver.arena("in", Discard{});
    const Buffer<char> coming{in, large};
    saver.pause("in");
    const Buffer<char> going{out, large};
    const auto usable = [](const Buffer<char>& bytes) {
        for (const std::size_t at : {std::size_t{0}, std::size_t{1_GiB} - 1, std::size_t{1_GiB}, large - 1})
            bytes.data()[at] = 7;
    };
    usable(going);
    CHECK(saver.exchange("out", "in").handed_bytes == large);
    CHECK(in.usage().mapped_bytes == large);
    CHECK(out.usage().mapped_bytes == 0);
    usable(coming);
    saver.pause("in");
    saver.resume("out");
    usable(going);
}

TEST_CASE("exchange: if one device has no room even without the outgoing tag, nothing is paused on any") {
    const bool handed = either("its pages are handed over", "they are released"); // on the second device
    const HostDriver first{64_MiB};
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{first};
    (void)saver.arena("in", HostBackup{}, first, ArenaOptions{.single_handle = true}).allocate(24_MiB);
    (void)saver.arena("in", HostBackup{}, second, ArenaOptions{.single_handle = !handed}).allocate(48_MiB);
    (void)saver.pause("in");
    const Arena out = saver.arena("out", HostBackup{}, first);
    (void)out.allocate(48_MiB); // has room for the incoming tag once it is paused
    (void)saver.arena("out", HostBackup{}, second).allocate(8_MiB);
    (void)saver.arena("other", HostBackup{}, second).allocate(52_MiB);
    const auto error = thrown<OutOfMemory>([&] { (void)saver.exchange("out", "in"); });
    CHECK(error.device() == 1);
    CHECK(error.report().released_bytes == 0);
    CHECK(out.usage().state == "active");
}
} // namespace saver_exchange_test
