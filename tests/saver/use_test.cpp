// Uses: paused tags are resumed, idle tags are evicted, tags in use stay resident.
#include "graph/graph_support.hpp"
#include "saver/tags_world.hpp"
#include "support/each_of.hpp"

namespace saver_use_test {
using namespace test;
using D = MachineDriver;
using World = TagsWorld;
const std::vector<std::string> abcd{"a", "b", "c", "d"};

static_assert(std::is_nothrow_move_constructible_v<Use> && std::is_nothrow_move_assignable_v<Use>);
static_assert(std::is_nothrow_default_constructible_v<Use> && !std::is_copy_constructible_v<Use>);

/// Four paused tags, of which three fit.
struct OnFour {
    World world{abcd};
    MemorySaver<D>& saver = *world.saver;
};

/// One of them, "a".
struct OnOne {
    World world{{"a"}};
    MemorySaver<D>& saver = *world.saver;
};

TEST_CASE_FIXTURE(OnFour, "use: paused tags are resumed, and room is made by pausing the least recently used") {
    for (const char* name : {"a", "b", "c"}) {
        const Use use = saver.use(name);
        CHECK(use);
        CHECK(world.whole(name));
    }
    CHECK(world.states({"a", "b", "c", "d"}) == "1110");
    const std::uint64_t calls = world.driver.calls();
    (void)saver.use({"a", "a"});          // b is now the least recently used
    CHECK(world.driver.calls() == calls); // a hit makes none
    {
        const Use use = saver.use("d");
        CHECK(world.whole("d"));
        CHECK(row_of(saver, "d").users == 1);
    }
    CHECK(world.states({"a", "b", "c", "d"}) == "1011");
    const ResidencyUsage counts = world.counts();
    CHECK(std::array{counts.hits, counts.misses, counts.waits, counts.evictions} ==
          std::array<std::uint64_t, 4>{1, 4, 0, 1});
    CHECK(std::array{counts.brought_bytes, counts.restored_bytes, counts.evicted_bytes, counts.saved_bytes} ==
          std::array<std::uint64_t, 4>{4 * each, 4 * each, each, each});
    const ArenaUsage row = row_of(saver, "b");
    CHECK(row.users == 0);
    CHECK(row.evictable);
    CHECK(row.age > 0ns);
    CHECK(contains(printed(saver.usage()), "users"));
}

TEST_CASE_FIXTURE(OnFour, "use: hooks run around what it pauses and what it resumes") {
    std::string told;
    const auto note = [&](const char* what) {
        return [&told, what](const auto& event) { told += what + event.tags.front() + ' '; };
    };
    const Hook hooks[] = {saver.before_pause(note("-")), saver.after_pause(note("=")), saver.before_resume(note("+")),
                          saver.after_resume(note("#"))};
    for (const char* name : {"a", "b", "c", "c", "d"}) const Use use = saver.use(name);
    CHECK(told == "+a #a +b #b +c #c -a +d =a #d ");
}

TEST_CASE_FIXTURE(OnFour, "use: one that can never fit is OutOfMemory at once, and says who holds what") {
    const Use held = saver.use("a");
    const auto refused = [&](const Tags& tags) {
        const auto error = thrown<OutOfMemory>([&] { const Use use = saver.use(tags); });
        CHECK(error.needed_bytes() >= each);
        CHECK(about(error.free_bytes(), 40_MiB - each));
        REQUIRE(!error.holders().empty());
        CHECK(error.holders()[0].tag == "a");
        CHECK(error.holders()[0].bytes == each);
        CHECK(error.holders()[0].users == 1);
        CHECK(error.holders()[0].state == "in use");
        CHECK(contains(error.what(), "held: \"a\" 12.00 MiB in use by 1"));
    };
    refused({"b", "c", "d"});                            // by the thread that holds the other one
    Doing other{[&] { refused({"a", "b", "c", "d"}); }}; // and by one that holds none: the end of a use would not help
    other.join();
    CHECK(world.states({"a", "b", "c", "d"}) == "1000");
    CHECK(row_of(saver, "b").users == 0);
}

TEST_CASE_FIXTURE(OnOne, "use: a tag that was never used, nor made evictable, is never evicted") {
    const Buffer<char> kept{saver.arena("kept"), 30_MiB};
    const std::string text = text_of<OutOfMemory>([&] { const Use use = saver.use("a", {.room_within = 1h}); });
    CHECK(contains(text, "held: \"kept\" 30.00 MiB not evictable"));
    const std::string other = text_of<OutOfMemory>([&] { (void)saver.arena("kept").allocate(1_GiB); });
    CHECK(contains(other, "held: \"kept\" 30.00 MiB"));
    CHECK(!contains(other, "pause no other tag")); // there is no other one
}

TEST_CASE_FIXTURE(OnFour, "use: waits for room that another thread's use holds, and no longer than room_within") {
    std::optional<Use> held{saver.use({"a", "b", "c"})};
    Doing{[&] {
        const auto error = thrown<OutOfMemory>([&] { (void)saver.use("d", {.room_within = 1ms}); });
        CHECK(error.holders().size() == 3);
        CHECK(error.tag() == "d");
    }}.join();
    const std::uint64_t before = world.counts().waits; // that one may have waited, or not even that
    Doing other{[&] {
        const Use use = saver.use("d");
        CHECK(world.whole("d"));
    }};
    while (world.counts().waits == before) std::this_thread::yield();
    held.reset();
    other.join();
    CHECK(world.here("d"));
}

TEST_CASE_FIXTURE(OnFour, "use: behind another one in the queue, the deadline says whether room was lacking") {
    world.fill("small", {}, 1_MiB);
    (void)saver.pause("small", {.order = already_idle});
    HeldStream busy{host_of(world.driver)};
    saver.use({"a", "b", "c"}).until(busy.get());
    const std::uint64_t before = world.counts().misses;
    Doing marked{[&] { (void)saver.use("d"); }}; // waits for the marked work
    while (world.counts().misses == before) std::this_thread::yield();
    CHECK_THROWS_AS((void)saver.use("small", {.timeout = 5ms}), NotIdle); // there is room
    busy.let_go();
    marked.join();
    std::optional<Use> all{saver.use({"b", "c", "d"})};
    const std::uint64_t waits = world.counts().waits;
    Doing lacks{[&] { (void)saver.use("a"); }};
    while (world.counts().waits == waits) std::this_thread::yield();
    Doing{[&] { CHECK_THROWS_AS((void)saver.use({"a", "small"}, {.timeout = 5ms}), OutOfMemory); }}.join();
    all.reset();
    lacks.join();
}

TEST_CASE("use: memory that nobody holds is taken before other uses are waited for") {
    const bool elastic = either("of elastic memory, by its owner's consent", "though the device is to be waited for");
    World world{{"a", "b"}};
    MemorySaver<D>& saver = *world.saver;
    Elastic cache;
    const auto give = [&](std::size_t) {
        CHECK(cache.committed_bytes() != 0); // it is asked once
        cache.resize(0, already_idle);
        return 2 * each;
    };
    if (elastic) {
        cache = saver.arena("cache").elastic(2 * each, {.granularity = each, .on_reclaim = give});
        cache.commit(0, 2 * each);
    } else {
        const Buffer<char> scratch{saver.arena("scratch", Discard{}), 2 * each};
    }
    const Use a = saver.use("a");
    Doing other{[&] { CHECK(saver.use("b", {.room_within = 0ms})); }};
    CHECK_NOTHROW(other.join());
    cache = {};
}

TEST_CASE_FIXTURE(OnFour, "use: its deadline has passed, however much others allocate and free meanwhile") {
    const Use held = saver.use({"a", "b", "c"});
    const Arena noise = saver.arena("noise");
    int most = 1000;
    world.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::memory && most-- > 0) noise.deallocate(noise.allocate(64_KiB), already_idle);
    });
    Doing{[&] { CHECK_THROWS_AS((void)saver.use("d", {.room_within = 0s}), OutOfMemory); }}.join();
    world.driver.on_call({});
    CHECK(most > 0);
}

TEST_CASE("use: a pause of a tag in use waits, or is NotIdle; by the holder it is Misuse") {
    World world{{"a", "b"}};
    auto& saver = *world.saver;
    std::optional<Use> held{saver.use("a")};
    check_says<Misuse>("in use by this thread", [&] { (void)saver.pause("a"); });
    CHECK_THROWS_AS((void)saver.pause(), Misuse);
    CHECK_THROWS_AS(saver.drop("a"), Misuse);
    const auto error = thrown<NotIdle>([&] { (void)saver.pause({"a", "b"}, {.timeout = 1ms}); });
    CHECK(contains(error.what(), "still had 1 use when"));
    REQUIRE(error.holders().size() == 1);
    CHECK(error.holders()[0].users == 1);
    CHECK(world.whole("a"));
    {
        Doing pausing{[&] { (void)saver.pause("a"); }};
        Doing fresh{[&] { // waits for the pause, which it must not pass
            while (row_of(saver, "a").state == "active" && !pausing.over()) std::this_thread::yield();
            const Use use = saver.use("a");
            CHECK(world.whole("a"));
        }};
        std::this_thread::yield();
        held.reset();
        pausing.join();
        fresh.join();
    }
    CHECK(row_of(saver, "a").pauses == 2);
}

TEST_CASE_FIXTURE(OnMachine, "use: until a stream or an event has passed" * on_hosts) {
    const HeldStream stream{machine.driver};
    MemorySaver saver{machine.driver};
    const Buffer<char> a{saver.arena("a", HostBackup{.threads = 1}), 1_MiB};
    const auto check_holds = [&] {
        check_says<NotIdle>("had not completed",
                            [&] { (void)saver.pause("a", {.order = already_idle, .timeout = 1ms}); });
        stream.let_go();
        CHECK(saver.pause("a", {.order = already_idle}).released_bytes != 0);
    };
    saver.use("a").until(stream.get());
    check_holds();
    stream.hold();
    {
        OwnedEvent event;
        REQUIRE(event.open(machine.driver, stream.get()).ok());
        REQUIRE(machine.driver.record(event.get(), stream.get()).ok());
        Use use = saver.use("a");
        use.until(event.get());
        use.release();
        use.release(); // a no-op
        CHECK(!use);
        CHECK_THROWS_AS(use.until(event.get()), Misuse);
        CHECK_THROWS_AS(saver.use("a").until(EventRef{}), Misuse);
        CHECK_THROWS_AS(use.until(stream.get()), Misuse);
    }
    check_holds();
}

TEST_CASE_FIXTURE(OnFour, "use: an eviction waits for the marks of the uses, and not for the device") {
    const HeldStream busy{world.driver}; // never named: nothing waits for it
    const HeldStream stream{world.driver};
    saver.use({"a", "b", "c"}).until(stream.get());
    for (const UseOptions& brief : {UseOptions{.timeout = 1ms}, UseOptions{.room_within = 1ms, .timeout = 1h}}) {
        const auto error = thrown<NotIdle>([&] { (void)saver.use("d", brief); });
        CHECK(error.holders().size() == 3);
        CHECK(contains(error.what(), "had not completed"));
    }
    CHECK(world.states({"a", "b", "c", "d"}) == "1110");
    stream.let_go();
    (void)saver.use("d");
    CHECK(world.whole("d"));
}

TEST_CASE("use: lost bytes are reported until a use that was informed has ended") {
    World world{{"kept"}};
    auto& saver = *world.saver;
    world.add("dropped", Discard{});
    CHECK(saver.use("kept").lost().empty());
    {
        const Use use = saver.use({"kept", "dropped"});
        CHECK(use.lost() == std::vector<std::string>{"dropped"});
        CHECK(saver.use("dropped").lost().size() == 1); // a concurrent use: not filled yet
    }
    CHECK(saver.use("dropped").lost().empty());
    (void)saver.pause("kept", {.bytes = Discard{}});
    CHECK(saver.use("kept").lost().size() == 1);
    CHECK(saver.use("kept").lost().empty());
    (void)saver.pause("kept");
    saver.forget_backup("kept");
    CHECK(saver.use("kept").lost().size() == 1);
    (void)saver.pause("kept");
    (void)saver.resume("kept", {.bytes = Discard{}});
    CHECK(saver.use("kept").lost().size() == 1);
    (void)saver.pause("kept");
    world.driver.fail({.call = Call::wait});
    CHECK_THROWS_AS(saver.resume_async("kept", {.bytes = Zero{}}).wait(), DriverError);
    (void)saver.resume("kept"); // the saved bytes come back after all
    CHECK(saver.use("kept").lost().empty());
    (void)saver.pause("kept", {.bytes = Discard{}});
    CHECK(saver.use("kept").lost().size() == 1);
    CHECK(Use{}.lost().empty());
}

TEST_CASE("use: a hook around an eviction that pauses or drops a tag which the use moves is refused") {
    const std::string what = each_of<std::string>({"pause", "drop", "exchange"});
    for (const bool before : {true, false}) {
        CAPTURE(before);
        World world{abcd};
        auto& saver = *world.saver;
        world.use_each({"b", "c", "d"});
        const Buffer<char> more{saver.arena("a"), 1_MiB}; // partly paused
        int refused = 0;
        const auto run = [&](PauseEvent& event) {
            if (event.tags.at(0) != "b") return;
            check_says<Misuse>("tag \"a\" is in use by this thread", [&] {
                if (what == "pause") (void)saver.pause("a");
                if (what == "drop") saver.drop("a");
                if (what == "exchange") (void)saver.exchange("a", "c");
            });
            refused += 1;
            CHECK_THROWS_AS((void)saver.pause("a", {.timeout = 1ms}), NotIdle);
        };
        const Hook hook = before ? saver.before_pause(run) : saver.after_pause(run);
        CHECK(saver.use("a").lost().empty());
        CHECK(refused == 1);
        CHECK(world.whole("a"));
    }
}

TEST_CASE("use: the text of a timeout after an eviction does not say that nothing has changed") {
    World* there = nullptr;
    std::optional<HeldStream> busy;
    const auto again = [&](const NoRoom&) { // `out` has been evicted
        there->driver.heal();
        void* const block = there->saver->arena("out").allocate(32_MiB);
        busy.emplace(host_of(there->driver));
        CHECK(host_of(there->driver).fill(address_of(block), 1, each, busy->get()).ok());
        return true;
    };
    World world{{"a"}, SaverOptions{.on_no_room = again}};
    there = &world;
    (void)world.saver->arena("out", HostBackup{.threads = 1}, ArenaOptions{.evictable = true}).allocate(30_MiB);
    world.driver.fail({.call = Call::create, .lasting = Lasting::onwards, .kind = StatusKind::out_of_memory});
    const std::string text =
        text_of<NotIdle>([&] { (void)world.saver->use("a", {.timeout = 50ms, .order = Order{}}); });
    CHECK_MESSAGE(contains(text, "nothing has changed since tags were paused or resumed for it"), text);
    busy.reset();
}

TEST_CASE("use: an error reports what all of its attempts have paused") {
    bool asked = false; // for another attempt, which finds nothing more to pause
    World world{{"a"}, SaverOptions{.on_no_room = [&](const NoRoom&) { return !std::exchange(asked, true); }}};
    (void)world.saver->arena("out", HostBackup{.threads = 1}, ArenaOptions{.evictable = true}).allocate(30_MiB);
    world.driver.fail({.call = Call::create, .lasting = Lasting::onwards, .kind = StatusKind::out_of_memory});
    const auto error = thrown<OutOfMemory>([&] { (void)world.saver->use("a"); });
    CHECK(error.report().released_bytes >= 30_MiB);
    REQUIRE(!error.report().tags.empty());
    CHECK(error.report().tags.front().tag == "out");
    CHECK(asked);
    world.driver.heal();
    (void)world.saver->use("a");
    CHECK(world.whole("a"));
}

/// Uses tag "a" until what waits for an earlier use makes others wait.
void use_until_others_wait(MemorySaver<D>& saver) {
    for (;;) {
        try {
            (void)saver.use("a", {.timeout = 0ms});
        } catch (const NotIdle&) {
            return;
        }
    }
}

TEST_CASE_FIXTURE(OnOne, "use: a pause that waits for a use is refused once the saver is closed, also if that fails") {
    const Use use = saver.use("a");
    Doing pausing{[&] { CHECK_THROWS_AS((void)saver.pause("a"), Misuse); }};
    Doing{[&] { use_until_others_wait(saver); }}.join();
    world.driver.fail({.call = Call::drain});
    CHECK_THROWS_AS(saver.close(), DriverError);
    pausing.join();
    CHECK(row_of(saver, "a").state == "active");
}

TEST_CASE_FIXTURE(OnFour, "use: moves between threads, and is held by the thread that moved it last") {
    std::optional<Use> held{saver.use({"a", "b", "c"})};
    CHECK_THROWS_AS((void)saver.use("d"), OutOfMemory); // this thread would wait for itself
    Turnstile gate;
    Doing other{[&] {
        Use mine = std::move(*held);
        held.reset();
        gate.pass();
        mine.release();
    }};
    gate.await();
    gate.open();
    const Use use = saver.use("d"); // this one holds none now
    other.join();
    CHECK(world.whole("d"));
    Use target;
    target = saver.use("d");
    Use source = std::move(target);
    CHECK(!target); // NOLINT(bugprone-use-after-move): what is left of it
    source = Use{};
    CHECK(row_of(saver, "d").users == 1);
}

TEST_CASE("use: inside a capture a hit works and a miss is Misuse") {
    World world{{"a", "b"}};
    auto& saver = *world.saver;
    const OwnStream stream{world.driver};
    (void)saver.use("a");
    (void)capture(saver, "graph", stream, [&] {
        Use use = saver.use("a");
        CHECK(use);
        CHECK_THROWS_AS(use.until(stream), Misuse);
        check_says<Misuse>("inside a capture", [&] { (void)saver.use("b"); });
    });
}

TEST_CASE_FIXTURE(OnOne, "use: a thread that waits for a tag which another thread drops gets Misuse") {
    std::optional<Use> use{saver.use("a")};
    Doing dropping{[&] { saver.drop("a"); }};
    std::string said;
    Turnstile claimed;
    claimed.open();
    Doing waiting{[&] {
        use_until_others_wait(saver);
        claimed.pass();
        said = text_of<Misuse>([&] { (void)saver.use("a"); });
    }};
    claimed.await();
    std::this_thread::sleep_for(5ms); // as a rule, the third use waits by now
    use.reset();
    waiting.join();
    dropping.join();
    CHECK((contains(said, "has been dropped") || contains(said, "unknown")));
    CHECK_THROWS_AS((void)saver.use("a"), Misuse);
}

TEST_CASE("use: its order and another thread's pause of the tag are waited for, until the earlier of both limits") {
    World world{{"a", "b"}};
    MemorySaver<D>& saver = *world.saver;
    (void)saver.arena("kept").allocate(each + each / 2);
    { const Use a = saver.use("a"); }
    HeldStream busy{world.driver};
    CHECK_THROWS_AS((void)saver.use("b", {.timeout = 5ms, .order = after(busy.get())}), NotIdle);
    WaitingBeside pausing{world.driver, [&] { (void)saver.pause("a", {.order = after(busy.get())}); }};
    CHECK_THROWS_AS((void)saver.use("a", {.room_within = 0ms, .timeout = 1h}), NotIdle);
    CHECK_THROWS_AS((void)saver.use("a", {.room_within = 1h, .timeout = 5ms}), NotIdle);
    Doing fresh{[&] { CHECK(saver.use("a", {.room_within = 1h})); }};
    std::this_thread::yield();
    busy.let_go();
    pausing.join();
    fresh.join();
    CHECK(world.whole("a"));
}

TEST_CASE_FIXTURE(OnHost, "use: bytes that are on their way are waited for, no longer than either limit") {
    const bool streamed = either("streamed", "by another thread");
    MemorySaver saver{machine.driver, {.default_policy = HostBackup{.threads = 1}}};
    const Buffer<char> weights{saver.arena("weights"), 8_MiB};
    saver.pause("weights");
    REQUIRE(host_of(machine.driver).stall_copies(100ms).ok());
    const HeldLane lane{machine.driver, Direction::in};
    std::optional<Doing> resumes;
    if (!streamed) resumes.emplace([&] { saver.resume("weights"); });
    const Arrival coming = streamed ? saver.resume_async("weights") : Arrival{};
    while (row_of(saver, "weights").mapped_bytes == 0) std::this_thread::yield();
    CHECK_THROWS_AS((void)saver.use("weights", {.room_within = 1ms}), NotIdle);
    lane.let_go();
    CHECK_NOTHROW((void)saver.use("weights", {.room_within = 1h, .timeout = 1h}));
}

TEST_CASE("use: a tag that is used between its before-pause hook and its eviction has the hook again") {
    MemorySaver saver{HostDriver{64_MiB}, {.default_policy = HostBackup{.threads = 1}}};
    const Buffer<char> wanted{saver.arena("wanted"), 40_MiB};
    saver.pause("wanted");
    const Buffer<char> idle{saver.arena("idle"), 40_MiB};
    { const Use before = saver.use("idle"); }
    Turnstile hook_ran;
    Turnstile used;
    std::vector<std::string> told;
    std::mutex mutex;
    const auto note = [&](const char* what) {
        const std::lock_guard lock{mutex};
        told.emplace_back(what);
    };
    Doing other{[&] {
        hook_ran.await();
        const Use between = saver.use("idle");
        hook_ran.open();
        used.pass(); // until the first thread has seen that the tag is in use
        note("used");
    }};
    int hooks = 0;
    const Hook before = saver.before_pause([&](const PauseEvent&) {
        note("before");
        if (hooks++ == 0) hook_ran.pass();
    });
    const Hook failed = saver.after_failed_pause([&](const PauseEvent&) {
        note("failed");
        used.open();
    });
    const Hook after = saver.after_pause([&](const PauseEvent&) { note("after"); });
    { const Use use = saver.use("wanted"); }
    other.join();
    CHECK(told == std::vector<std::string>{"before", "failed", "used", "before", "after"});
}
} // namespace saver_use_test
