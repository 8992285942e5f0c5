// Misuse in general: every invalid call is refused by an exception that describes it, and the saver is unchanged.
// Misuse of a specific call is tested next to that call; docs/reliability.md lists where.
#include "memsaver/arena/arena.hpp"
#include "support/each_of.hpp"
#include "support/every_call.hpp"

#include <latch>

namespace saver_misuse_test {
using namespace test;

/// Returns the observable state of a saver.
template <class Saver>
std::vector<std::array<std::size_t, 6>> shown(Saver& saver) {
    std::vector<std::array<std::size_t, 6>> rows;
    for (const ArenaUsage& row : saver.usage()) {
        rows.push_back(
            {row.reserved_bytes, row.mapped_bytes, row.held_bytes, row.used_bytes, row.paused_bytes, row.blocks});
    }
    return rows;
}

/// An invalid call, and the parts of its message: call, tag, pointer and size, if applicable.
struct Wrong {
    std::function<void()> act;
    std::vector<std::string> says;
};

/// Returns the tag that a text names first, unless it names a list of them.
std::string first_named(const std::string& text) {
    const std::size_t at = text.find("tag \"");
    if (at == std::string::npos || contains(text, "tags \"")) return {};
    return text.substr(at + 5, text.find('"', at + 5) - at - 5);
}

/// Calls `after()` after each.
template <class After>
void check_refused(const std::vector<Wrong>& wrongs, After&& after) {
    for (std::size_t i = 0; i < wrongs.size(); ++i) {
        CAPTURE(i);
        const auto error = thrown<Misuse>(wrongs[i].act);
        const std::string text = error.what();
        CHECK_MESSAGE(error.tag() == first_named(text), text);
        for (const std::string& part : wrongs[i].says) CHECK_MESSAGE(contains(text, part), part, " in: ", text);
        after();
    }
}

void check_refused(const std::vector<Wrong>& wrongs) {
    check_refused(wrongs, [] {});
}

std::string at(const void* pointer) { return format_address(reinterpret_cast<Address>(pointer)); }

TEST_CASE_FIXTURE(OnSaver, "misuse changes nothing, whether memory is active or paused" * on_machines) {
    const bool paused = either("paused", "active");
    MemorySaver other{machine.driver};
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1}, {.capacity = 64_MiB});
    auto* const block = static_cast<unsigned char*>(arena.allocate(3_MiB));
    auto* const small = static_cast<unsigned char*>(arena.allocate(1000));
    void* const freed = arena.allocate(5_MiB);
    void* const foreign = other.arena("tag").allocate(1_MiB);
    int on_the_host = 0;
    auto* const plain = static_cast<unsigned char*>(saver.outside().allocate(1000));
    const OwnStream stream{machine.driver};
    write_pattern(machine.driver, block, 3_MiB, 1);
    write_pattern(machine.driver, small, 1000, 2);
    arena.deallocate(freed);
    (void)saver.trim(); // otherwise an allocation that runs out of memory does
    if (paused) (void)saver.pause();

    constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
    const std::string tag = "tag \"tag\"";
    const std::string unknown = "unknown tag \"nobody\"";
    const std::string outside = "tag \"outside\"";
    const Tags listed{"tag", "nobody"};
    const std::vector<Wrong> wrongs{
        {[&] { saver.deallocate(freed); }, {tag, at(freed), "freed before"}},
        {[&] { saver.deallocate(freed, already_idle); }, {tag, at(freed), "freed before"}},
        {[&] { saver.deallocate(foreign); }, {at(foreign), "no tag of this saver"}},
        {[&] { saver.deallocate(&on_the_host); }, {at(&on_the_host), "no tag of this saver"}},
        {[&] { saver.deallocate(block + 4096); }, {tag, at(block + 4096), at(block), "3.00 MiB"}},
        {[&] { saver.deallocate(block + 1, stream); }, {tag, at(block + 1), at(block), "3.00 MiB"}},
        {[&] { saver.deallocate(small + 256, already_idle); }, {tag, at(small + 256), at(small), "1000 B"}},
        {[&] { saver.deallocate(plain + 256); }, {outside, at(plain + 256), at(plain), "inside", "1000 B"}},
        {[&] { saver.deallocate(plain + 1000); }, {at(plain + 1000), "no tag of this saver"}}, // its end
        {[&] { (void)saver.backup_view(plain, 7); }, {outside, at(plain), "7 B", "never paused"}},
        {[&] { (void)saver.outside().allocate(0); }, {outside, "allocate(0 bytes)"}},
        {[&] { (void)saver.outside().allocate(1, 512); }, {outside, "allocate(1 bytes)", "512"}},
        {[&] { arena.deallocate(plain); }, {tag, at(plain)}},
        {[&] { (void)arena.allocate(0); }, {tag, "allocate(0 bytes)", "the size is 0"}},
        {[&] { (void)arena.allocate(huge); }, {tag, std::to_string(huge), "64.00 MiB", "a negative number?"}},
        {[&] { (void)arena.allocate(huge - 255); }, {tag, std::to_string(huge - 255), "64.00 MiB"}},
        {[&] { (void)arena.allocate(64_MiB + 1); }, {tag, std::to_string(64_MiB + 1), "64.00 MiB"}},
        {[&] { (void)arena.allocate(paused ? 65_MiB : 62_MiB); }, // paused memory does not count
         {tag, paused ? std::to_string(65_MiB) : "62.00 MiB", "64.00 MiB"}},
        {[&] { (void)arena.allocate(64, std::size_t{0}); }, {tag, "nullptr"}},
        {[&] { (void)saver.outside().allocate(64, std::size_t{0}); }, {outside, "nullptr"}},
        {[&] { (void)arena.allocate(1, 3); }, {tag, "allocate(1 bytes)", "alignment of 3", "power of two"}},
        {[&] { (void)arena.allocate(1, std::size_t{1} << 63U); }, {tag, "more than 1 GiB"}},
        {[&] { (void)saver.allocate(1); }, {"allocate(1 bytes)", "no open region"}},
        {[&] { (void)saver.arena("tag", Zero{}); }, {tag, "\"host\"", "\"zero\""}},
        {[&] { (void)saver.arena("tag", HostBackup{.threads = 2}); }, {tag, "\"threads 1\"", "\"threads 2\""}},
        {[&] { (void)saver.pause(""); }, {"pause: unknown tag \"\""}},
        {[&] { (void)saver.region("tag", Discard{}); }, {tag, "\"host\"", "\"discard\""}},
        {[&] { (void)saver.arena("tag", HostBackup{.threads = 1}, {.capacity = 32_MiB}); },
         {tag, "64.00 MiB", "32.00 MiB"}},
        {[&] { (void)saver.arena(""); }, {"tag \"\"", "needs a name"}},
        {[&] { (void)saver.pause("nobody"); }, {"pause: " + unknown}},
        {[&] { (void)saver.pause(listed); }, {"pause: " + unknown}},
        {[&] { (void)saver.resume(listed); }, {"resume: " + unknown}},
        {[&] { (void)saver.resume_async("nobody"); }, {unknown}},
        {[&] { (void)saver.trim("nobody"); }, {"trim: " + unknown}},
        {[&] { saver.invalidate("nobody"); }, {"invalidate: " + unknown}},
        {[&] { saver.prepare("nobody"); }, {"prepare: " + unknown}},
        {[&] { (void)saver.bytes_to_resume("nobody"); }, {"bytes_to_resume: " + unknown}},
        {[&] { (void)saver.use("nobody"); }, {unknown}},
        {[&] { (void)saver.use(listed); }, {unknown}},
        {[&] { saver.drop("nobody"); }, {"drop: " + unknown}},
        {[&] { saver.set_capacity("nobody", 1); }, {unknown}},
        {[&] { saver.set_priority("nobody", 1); }, {unknown}},
        {[&] { saver.set_evictable("nobody", true); }, {unknown}},
        {[&] { (void)saver.backup_view(foreign, 1); }, {at(foreign), "1 B", "no tag of this saver"}},
        {[&] { (void)arena.backup_view(foreign, 1); }, {tag, at(foreign), "1 B", "does not belong to this tag"}},
        {[&] { (void)arena.backup_view(nullptr, 1); }, {tag, "1 B", "does not belong to this tag"}},
        {[&] { (void)saver.backup_view(block, 3_MiB + 4096); }, {tag, at(block), "3.00 MiB", "past the end"}},
        {[&] { (void)saver.before_pause({}); }, {"hook"}},
        {[&] { Buffer<double>(arena, 0); }, {tag, "0 elements"}},
        {[&] { Buffer<double>(arena, -1); }, {tag, "-1 elements of 8 bytes"}},
        {[&] { Buffer<double>(arena, std::numeric_limits<std::int64_t>::min()); }, {tag, "8 bytes"}},
        {[&] { Buffer<double>(arena, huge / 8 + 1); }, {tag, std::to_string(huge / 8 + 1), "8 bytes"}},
    };
    const auto before = shown(saver);
    {
        const auto runs = [](auto&) { FAIL_CHECK("a hook of a refused call"); };
        const Hook hooks[] = {saver.before_pause(runs), saver.before_resume(runs)};
        check_refused(wrongs, [&] { CHECK(shown(saver) == before); });
    }
    if (paused) (void)saver.resume();
    CHECK(has_pattern(machine.driver, block, 3_MiB, 1));
    CHECK(has_pattern(machine.driver, small, 1000, 2));
    saver.deallocate(block);
    saver.deallocate(plain);
    check_refused({{[&] { saver.deallocate(plain); }, {at(plain), "plain memory", "freed before"}},
                   {[&] { saver.deallocate(block); }, {tag, at(block), "freed before"}}});
}

TEST_CASE_FIXTURE(OnSaver, "a block that two threads free at once is freed by one" * on_machines) {
    const Arena arena = saver.arena("tag");
    for (int i = 0; i < 50; ++i) {
        void* const block = arena.allocate(i % 2 == 0 ? 300 : 300'000);
        std::latch both{2};
        std::atomic<int> refused{0};
        Threads threads{2, [&](std::size_t) {
                            both.arrive_and_wait();
                            try {
                                saver.deallocate(block);
                            } catch (const Misuse&) {
                                ++refused;
                            }
                        }};
        threads.join();
        CHECK(refused == 1);
    }
    CHECK(arena.usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnEither, "after close each call says what was wanted, and of which tag" * on_machines) {
    using Of = EveryCall<MemorySaver<MachineDriver>>::Of;
    for (const char* tag : {"a", "b"}) (void)saver.arena(tag).allocate(1000);
    const Arena arena = saver.arena("a");
    void* const block = arena.allocate(1000);
    void* const plain = saver.outside().allocate(1000);
    const auto region = saver.region("b");
    const Arrival arrival = saver.resume_async();
    saver.close();
    saver.close();
    CHECK(machine.driver.handle_bytes() + machine.driver.plain_bytes() + machine.driver.reserved_bytes() == 0);
    for (const auto& each : every_call<MemorySaver<MachineDriver>>()) {
        const std::string name = each.name;
        CAPTURE(name);
        const auto call = [&] { each.call(saver, arena, block); };
        if (each.of == Of::either) CHECK_NOTHROW(call());
        if (each.of == Of::pointer) CHECK_THROWS_AS(call(), Misuse);
        if (each.of == Of::saver) check_refused({{call, {name + ": the saver has been closed"}}});
        if (each.of == Of::arena) check_refused({{call, {name, "tag \"a\"", "closed"}}});
    }
    check_refused({
        {[&] { (void)saver.bytes_to_resume(std::initializer_list<std::string_view>{}); },
         {"bytes_to_resume of no tag: the saver has been closed"}},
        {[&] { (void)saver.allocate(77); }, {"allocate(77 bytes)", "tag \"b\"", "closed"}},
        {[&] { (void)region.allocate(77); }, {"allocate(77 bytes)", "tag \"b\"", "closed"}},
        {[&] { Buffer<char>(arena, 77); }, {"allocate(77 bytes)", "tag \"a\"", "closed"}},
    });
    if (enabled)
        check_refused({
            {[&] { saver.deallocate(block); }, {at(block), "tag \"a\"", "closed"}},
            {[&] { arrival.wait(block, 1000); }, {"wait for bytes", "closed"}},
            {[&] { arrival.wait(); }, {"wait for bytes", "closed"}},
            {[&] { arrival.before(StreamRef{}, block, 1000); }, {"before", "closed"}},
        });
    CHECK_THROWS_AS(saver.deallocate(plain), Misuse);
}

TEST_CASE_FIXTURE(OnEither,
                  "a block freed through another tag's arena stays; the error names both tags" * on_machines) {
    const Arena mine = saver.arena("mine");
    const Arena other = saver.arena("other");
    (void)other.allocate(1000);
    void* const block = mine.allocate(1000);
    const auto before = shown(saver);
    check_refused({{[&] { other.deallocate(block); }, {"tag \"other\"", at(block), "it belongs to tag \"mine\""}}},
                  [&] { CHECK(shown(saver) == before); });
    mine.deallocate(block);
}

TEST_CASE_FIXTURE(OnMachine, "errors of plain memory of a saver that is switched off say as much" * on_machines) {
    MemorySaver saver{machine.driver, {.enabled = false}};
    const Arena arena = saver.arena("tag", Zero{}, {.capacity = 64_MiB, .reserve = 1_MiB});
    auto* const block = static_cast<unsigned char*>(arena.allocate(1000));
    void* const freed = arena.allocate(1000);
    arena.deallocate(freed);
    Elastic grown = arena.elastic(8_MiB, {.granularity = 1_MiB});
    grown.resize(1_MiB);
    void* const growing = grown.data();
    const std::string tag = "tag \"tag\"";
    const auto before = shown(saver);
    check_refused(
        {
            {[&] { (void)arena.allocate(0); }, {tag, "allocate(0 bytes)"}},
            {[&] { (void)arena.allocate(1, 512); }, {tag, "allocate(1 bytes)", "512"}},
            {[&] { arena.deallocate(freed); }, {tag, at(freed), "freed before"}},
            {[&] { saver.deallocate(block + 999); }, {tag, at(block + 999), at(block), "1000 B"}},
            {[&] { saver.deallocate(growing); }, {tag, at(growing), "in a workspace"}},
            {[&] { grown.resize(9_MiB); }, {tag, at(growing), "9.00 MiB", "8.00 MiB"}},
            {[&] { (void)saver.backup_view(block, 7); }, {tag, at(block), "7 B", "never paused"}},
            {[&] { (void)saver.arena("tag", Zero{}, {.reserve = 2_MiB}); }, {tag, "1.00 MiB", "2.00 MiB"}},
        },
        [&] { CHECK(shown(saver) == before); });
    saver.deallocate(block);
}

TEST_CASE_FIXTURE(OnMachine, "a tag's options are those that it was made with" * on_machines) {
    const auto sink = [](const Event&) {};
    MemorySaver saver{machine.driver, {.margin = 1_MiB}};
    const ArenaOptions options{.capacity = 64_MiB, .reserve = 4_MiB, .margin = 2_MiB, .events = sink};
    const Arena arena = saver.arena("tag", Discard{}, options);
    const Arena bare = saver.arena("bare");
    const auto ask = [&](const char* tag, const ArenaOptions& asked) {
        return [&saver, tag, asked] { (void)saver.arena(tag, Discard{}, asked); };
    };
    const std::string tag = "tag \"tag\"";
    const auto before = shown(saver);
    check_refused(
        {
            {ask("tag", {.capacity = 32_MiB}), {tag, "another capacity: 64.00 MiB, not 32.00 MiB"}},
            {ask("tag", {.reserve = 8_MiB}), {tag, "another reserve: 4.00 MiB, not 8.00 MiB"}},
            {ask("tag", {.capacity = 64_MiB, .margin = 1_MiB}), {tag, "another margin: 2.00 MiB, not 1.00 MiB"}},
            {ask("tag", {.events = sink}), {tag, "event sink"}},
            {ask("tag", {.host_budget = std::make_shared<HostBudget>()}), {tag, "another host budget"}},
            {ask("bare", {.single_handle = true}), {"tag \"bare\""}},
            {ask("bare", {.capacity = 4_MiB}), {"tag \"bare\"", "capacity: none of its own, not 4.00 MiB"}},
            {ask("bare", {.reserve = 4_MiB}), {"tag \"bare\"", "reserve: none, not 4.00 MiB"}},
            {ask("bare", {.evictable = true}), {"tag \"bare\""}},
            {ask("bare", {.priority = 7}), {"tag \"bare\"", "priority 0, not 7"}},
            {[&] { (void)saver.region("tag", Discard{}, ArenaOptions{.reserve = 8_MiB}); }, {tag, "8.00 MiB"}},
        },
        [&] { CHECK(shown(saver) == before); });
    // The original options, some of them, or none.
    CHECK(saver.arena("tag", Discard{}, {.capacity = 64_MiB, .reserve = 4_MiB, .margin = 2_MiB}) == arena);
    CHECK(saver.arena("tag", Discard{}, {.reserve = 4_MiB}) == arena);
    CHECK(saver.arena("tag", Discard{}, ArenaOptions{}) == arena);
    CHECK(saver.arena("bare", Discard{}, {.margin = 1_MiB}) == bare); // the saver's
}

TEST_CASE("moved-from objects are refused, and end silently" * on_machines) {
    using Driver = MachineDriver;
    const Checked machine;
    MemorySaver<Driver> saver{machine.driver};
    const MemorySaver<Driver> taken{std::move(saver)};
    TaggedArena<Driver> arena{machine.driver, "tag"};
    const TaggedArena<Driver> taken_arena{std::move(arena)};
    int value = 0;
    // NOLINTBEGIN(bugprone-use-after-move): what is tested
    for (const auto& each : every_call<MemorySaver<Driver>>()) {
        CAPTURE(std::string{each.name});
        if (each.of == EveryCall<MemorySaver<Driver>>::Of::arena) continue;
        check_refused({{[&] { each.call(saver, {}, &value); }, {"a MemorySaver that was moved from"}}});
    }
    const std::vector<std::function<void()>> of_saver{
        [&] { (void)saver.allocate(1); }, [&] { saver.deallocate(&value, already_idle); },
        [&] { (void)saver.enabled(); },   [&] { (void)saver.driver(); },
        [&] { (void)saver.core(); },      [&] { (void)capture(saver, "a", StreamRef{}, [] {}); },
        [&] { (void)arena.driver(); },    [&] { arena.close(); },
    };
    const std::vector<std::function<void()>> of_arena{
        [&] { (void)arena.allocate(1); },
        [&] { arena.deallocate(&value); },
        [&] { arena.deallocate(&value, StreamRef{}); },
        [&] { (void)arena.pause(); },
        [&] { (void)arena.resume(); },
        [&] { (void)arena.trim(); },
        [&] { arena.prepare(); },
        [&] { arena.invalidate(); },
        [&] { (void)arena.backup_view(&value, 1); },
        [&] { (void)arena.bytes_to_resume(); },
        [&] { (void)arena.usage(); },
        [&] { (void)arena.tag(); },
        [&] { (void)arena.core(); },
    };
    // NOLINTEND(bugprone-use-after-move)
    for (const auto& act : of_saver) check_refused({{act, {"a MemorySaver that was moved from"}}});
    for (const auto& act : of_arena) check_refused({{act, {"use of an empty or moved-from Arena"}}});
}
} // namespace saver_misuse_test
