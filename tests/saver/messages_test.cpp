// The messages of exceptions and events.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"
#include "support/vanished.hpp"

namespace saver_messages_test {
using namespace test;

/// A machine of 64 MiB with a saver.
struct OnSmall {
    const HostDriver driver{64_MiB};
    MemorySaver<HostDriver> saver{driver};
};

std::string tag_named(const std::function<void()>& act) {
    try {
        act();
    } catch (const Error& error) {
        return error.tag();
    }
    return "nothing was thrown";
}

void check_ends(const std::string& text, const std::string& end) { CHECK_MESSAGE(text.ends_with(end), text); }

/// Checks who holds the memory that `act` lacks.
void says(const std::string& held, const std::function<void()>& act) {
    check_ends(text_of<OutOfMemory>(act), "; held: " + held);
}

TEST_CASE_FIXTURE(OnSmall, "messages: preparing and invalidating a tag that keeps nothing") {
    (void)saver.arena("kv", Discard{});
    (void)saver.arena("w", HostBackup{});
    const std::string why = "tag \"kv\" has the policy \"discard\", which keeps no bytes";
    check_says<Misuse>(why, [&] { saver.prepare(Tags{"w", "kv"}); });
    check_says<Misuse>(why, [&] { saver.invalidate("kv"); });
    saver.prepare(); // every tag that keeps bytes
    saver.invalidate(Tags::under("k"));
    TaggedArena<HostDriver, Zero> zero{driver, "z"};
    CHECK_THROWS_AS(zero.prepare(), Misuse);
}

TEST_CASE("messages: a warning, once for each tag, that bytes are dropped by a default policy") {
    const auto warned = [](SaverOptions options) { // the tags
        Told told;
        options.events = told.sink();
        MemorySaver saver{HostDriver{64_MiB}, options};
        const Buffer<char> unsaid{saver.arena("unsaid"), 1 << 20};
        const Buffer<char> said{saver.arena("said", Discard{}), 1 << 20};
        const Buffer<char> later{saver.arena("later"), 1 << 20};
        (void)saver.arena("later", Discard{});
        const Buffer<char> once{saver.arena("once"), 1 << 20};
        (void)saver.pause("once", {.bytes = HostBackup{}});
        (void)saver.resume("once");
        for (int i = 0; i < 2; ++i) {
            (void)saver.pause({"unsaid", "said", "later"});
            (void)saver.resume();
        }
        std::vector<std::string> tags;
        for (const Event& event : told.of(EventKind::warned)) tags.push_back(event.tag);
        return tags;
    };
    CHECK(warned({}) == std::vector<std::string>{"unsaid"});
    CHECK(warned({.default_policy = Discard{}}).empty());
}

TEST_CASE("new tags: with NewTags::with_policy only a use that names a policy makes one") {
    const bool enabled = either("on", "off");
    MemorySaver saver{HostDriver{64_MiB}, {.enabled = enabled, .new_tags = NewTags::with_policy}};
    const Arena weights = saver.arena("weights", HostBackup{});
    CHECK(saver.arena("weights") == weights);
    {
        const Region region = saver.region("weights");
        saver.deallocate(saver.allocate(100));
    }
    const std::string text = text_of<Misuse>([&] { (void)saver.arena("weigths"); });
    CHECK(text == "unknown tag \"weigths\": did you mean \"weights\"? a new tag of this saver needs a policy "
                  "(NewTags::with_policy)");
    CHECK(text_of<Misuse>([&] { (void)saver.arena("activations"); }) ==
          "unknown tag \"activations\"; a new tag of this saver needs a policy (NewTags::with_policy)");
    CHECK(text_of<Misuse>([&] { const Region region = saver.region("weigths"); }) == text);
    check_says<Misuse>("\"x\"", [&] { (void)saver.arena("x", ArenaOptions{.capacity = 2_MiB}); });
    check_says<Misuse>("\"graph\"", [&] { (void)capture(saver, "graph", StreamRef{}, [] {}); });
    CHECK(saver.usage().size() == 1);
    const Region kv = saver.region("kv", Discard{});
    saver.drop("weights");
    CHECK_THROWS_AS((void)saver.arena("weights"), Misuse); // unknown again
    CHECK(saver.arena("weights", Zero{}).tag() == "weights");
}

TEST_CASE("new tags: a default policy is not one that was named, and a second device makes no new tag") {
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{HostDriver{64_MiB}, {.default_policy = Zero{}, .new_tags = NewTags::with_policy}};
    CHECK_THROWS_AS((void)saver.arena("w"), Misuse);
    (void)saver.arena("w", Zero{});
    CHECK(saver.arena("w", Zero{}, second).device() == 1);
    MemorySaver allowed{HostDriver{64_MiB}};
    CHECK(allowed.arena("w").usage().policy == "discard");
}

TEST_CASE_FIXTURE(OnSmall, "messages: errors name the tag") {
    const Arena arena = saver.arena("w");
    CHECK(tag_named([&] { (void)arena.allocate(0); }) == "w");
    CHECK(tag_named([&] { (void)arena.allocate(100_MiB); }) == "w");
    CHECK(tag_named([&] { arena.deallocate(&saver); }) == "w");
    const Buffer<char> a{arena, 40 << 20};
    (void)saver.pause("w");
    const Buffer<char> b{saver.arena("b"), 40 << 20};
    CHECK(tag_named([&] { (void)saver.resume(); }) == "w");
    MemorySaver other{HostDriver{64_MiB}}; // one tag whose bytes cannot be kept, among others
    const Buffer<char> kept{other.arena("kept", HostBackup{}), 100};
    const Buffer<char> lost{arena_in_vanished_directory(other, "lost"), 100};
    CHECK(tag_named([&] { (void)other.pause(); }) == "lost");
}

TEST_CASE_FIXTURE(OnSmall, "messages: a stream that the device does not know is named") {
    const HostDriver other{16_MiB};
    const OwnStream stranger{other};
    const Arena arena = saver.arena("tag");
    void* const block = arena.allocate(1_MiB);
    const std::string named = "stream " + format_address(address_of(StreamRef{stranger}.native()));
    const std::function<void()> asks[] = {[&] { arena.deallocate(block, stranger); },
                                          [&] { saver.use("tag").until(stranger); },
                                          [&] { (void)saver.pause("tag", {.order = after(stranger)}); }};
    for (const auto& ask : asks) {
        const std::string text = text_of<Error>(ask);
        CHECK_MESSAGE((contains(text, named) && contains(text, "an open stream of device 0")), text);
    }
    arena.deallocate(block);
}

TEST_CASE_FIXTURE(OnSmall, "messages: NotIdle of one tag names it, of several none; and so do failed waits") {
    const Buffer<char> a{saver.arena("a"), 100};
    const HeldStream stream{driver};
    const PauseOptions at_once{.timeout = 0ns};
    CHECK(tag_named([&] { (void)saver.pause("a", at_once); }) == "a");
    CHECK(tag_named([&] { (void)saver.pause({}, at_once); }) == "nothing was thrown");
    CHECK(tag_named([&] { (void)saver.pause(Tags::all(), at_once); }) == "a"); // the only one that has memory
    const Buffer<char> b{saver.arena("b"), 100};
    CHECK(tag_named([&] { (void)saver.pause({"a", "b"}, at_once); }).empty());
    stream.finish();
    const OwnCapture open{driver, stream.get()};
    CHECK(tag_named([&] { (void)saver.pause("b", {.order = after(stream.get())}); }) == "b");
}

TEST_CASE_FIXTURE(OnSmall, "messages: a call that an open capture refuses names the captured tag") {
    (void)saver.arena("w");
    const OwnStream stream{driver};
    std::vector<std::string> named;
    (void)capture(saver, "graph", stream, [&] {
        named.push_back(tag_named([&] { (void)saver.pause("w"); }));
        named.push_back(tag_named([&] { saver.drop("w"); }));
        named.push_back(tag_named([&] { (void)capture(saver, "second", stream, [] {}); }));
    });
    CHECK(named == std::vector<std::string>{"graph", "graph", "second"});
    CHECK(text_of<Misuse>([&] { (void)capture(saver, "graph", StreamRef{}, [] {}); }) ==
          "capture of tag \"graph\": the default stream cannot be captured; pass a stream that the program created");
    CHECK(driver.violations().empty());
}

TEST_CASE_FIXTURE(OnSmall, "messages: the columns of the table stay apart") {
    const std::string tag = "a tag whose name is longer than any column";
    const Buffer<char> a{saver.arena(tag, Discard{.poison = 1}), 1 << 20};
    (void)saver.pause();
    const Buffer<char> b{saver.arena(tag), 1 << 20};
    const std::string out = printed(saver.usage());
    CHECK(contains(out, tag + "  "));
    CHECK(contains(out, "discard (poisoned)  partly paused  "));
}

TEST_CASE_FIXTURE(OnSmall,
                  "messages: OutOfMemory says who holds the device's memory, and that no other tag is paused for it") {
    CHECK(!contains(text_of<OutOfMemory>([&] { (void)saver.arena("first").allocate(100_MiB); }), "held")); // nobody
    const Buffer<char> weights{saver.arena("weights"), 30_MiB};
    const std::string advice =
        "; allocations and resumes pause no other tag by themselves, only uses do: pause one, call reclaim, set "
        "evict_for_allocations, or set on_no_room";
    const Arena arena = saver.arena("x");
    Elastic elastic = arena.elastic(256_MiB);
    const std::function<void()> asks[] = {
        [&] { (void)arena.allocate(40_MiB); },
        [&] { elastic.commit(0, 64_MiB); },
        [&] { (void)saver.arena("reserving", ArenaOptions{.reserve = 40_MiB}); },
        [&] { (void)Region{arena}.allocate(40_MiB); },
    };
    for (const auto& ask : asks) {
        says("\"weights\" 30.00 MiB" + advice, ask);
        const auto error = thrown<OutOfMemory>(ask);
        REQUIRE(error.holders().size() == 1);
        CHECK(error.holders()[0].tag == "weights");
    }
    // The tag's own memory is no reason to pause another one.
    says("\"weights\" 30.00 MiB", [&] { (void)saver.arena("weights").allocate(40_MiB); });
    // Another saver's memory has no name here.
    MemorySaver other{driver};
    says("30.00 MiB outside this saver's tags", [&] { (void)other.arena("y").allocate(40_MiB); });
    const Buffer<char> theirs{other.arena("y"), 20_MiB};
    says("\"weights\" 30.00 MiB, 20.00 MiB outside this saver's tags" + advice, [&] { (void)arena.allocate(40_MiB); });
    (void)other.pause();
    // A resume, and one of several tags with another saver in the way.
    (void)saver.pause("weights");
    const Buffer<char> cache{saver.arena("cache"), 50_MiB};
    says("\"cache\" 50.00 MiB" + advice, [&] { (void)saver.resume(); });
    says("\"cache\" 50.00 MiB" + advice, [&] { saver.resume_async("weights").wait(); });
    says("\"cache\" 50.00 MiB" + advice, [&] { (void)saver.exchange({}, "weights"); });
    // What may be evicted is told from what may not, once some tag may be.
    saver.set_evictable("weights", true);
    says("\"cache\" 50.00 MiB not evictable" + advice, [&] { (void)saver.resume(); });
    says("\"cache\" 50.00 MiB not evictable", [&] { (void)saver.use("weights"); });
}

TEST_CASE_FIXTURE(
    OnSmall, "messages: OutOfMemory of a saver that is switched off, and of a TaggedArena, says who holds memory") {
    MemorySaver off{driver, {.enabled = false}};
    const Buffer<char> weights{off.arena("weights"), 30_MiB};
    TaggedArena<HostDriver, Discard> alone{driver, "alone"};
    void* const block = alone.allocate(20_MiB);
    says("\"weights\" 30.00 MiB, 20.00 MiB outside this saver's tags", [&] { (void)off.arena("x").allocate(40_MiB); });
    const auto error = thrown<OutOfMemory>([&] { (void)alone.allocate(40_MiB); });
    check_ends(error.what(), "; held: \"alone\" 20.00 MiB, 30.00 MiB outside this saver's tags");
    REQUIRE(error.holders().size() == 1);
    CHECK(error.holders()[0].tag == "alone");
    CHECK(error.tag() == "alone");
    (void)alone.pause();
    const Buffer<char> cache{off.arena("cache"), 20_MiB};
    says("50.00 MiB outside this saver's tags", [&] { (void)alone.resume(); });
    says("50.00 MiB outside this saver's tags", [&] {
        const TaggedArena<HostDriver, Discard> more{driver, "more", Discard{}, {.reserve = 40_MiB}};
    });
    alone.deallocate(block);
}

TEST_CASE_FIXTURE(OnSmall,
                  "messages: OutOfMemory speaks of the device that had no room, and of a peer's backup names devices") {
    const HostDriver second{64_MiB, {.device = 1}};
    const Buffer<char> here{saver.arena("here", PeerBackup{second}), 30_MiB};
    const Buffer<char> there{saver.arena("there", Discard{}, second), 50_MiB};
    check_says<OutOfMemory>("; held: \"here\" 30.00 MiB; ", [&] { (void)saver.arena("x").allocate(40_MiB); });
    check_says<OutOfMemory>("; held: \"there\" 50.00 MiB; ",
                            [&] { (void)saver.arena("y", Discard{}, second).allocate(40_MiB); });
    check_says<OutOfMemory>("; held: \"there\" 50.00 MiB not evictable on device 1, \"here\" 30.00 MiB not "
                            "evictable on device 0",
                            [&] { (void)saver.pause("here"); });
}

TEST_CASE("messages: how often on_no_room was asked") {
    int asked = 0;
    bool answer = false;
    MemorySaver saver{HostDriver{64_MiB}, {.on_no_room = [&](const NoRoom&) {
                          asked += 1;
                          return answer;
                      }}};
    const Buffer<char> weights{saver.arena("weights"), 30_MiB};
    const auto allocate = [&] { (void)saver.arena("x").allocate(40_MiB); };
    CHECK(contains(text_of<OutOfMemory>(allocate),
                   "call reclaim, set evict_for_allocations, or free memory in on_no_room"));
    CHECK(std::exchange(asked, 0) == 1);
    answer = true;
    const std::string often = "; room was made 100 times, the most for one call, and did not suffice";
    CHECK(text_of<OutOfMemory>(allocate).ends_with(often));
    CHECK(std::exchange(asked, 0) == 100);
    (void)saver.pause();
    const Buffer<char> cache{saver.arena("cache"), 50_MiB};
    CHECK(text_of<OutOfMemory>([&] { (void)saver.resume("weights"); }).ends_with(often));
    CHECK(std::exchange(asked, 0) == 100);
    CHECK(text_of<OutOfMemory>([&] { const Use use = saver.use("weights"); }).ends_with(often));
    CHECK(asked == 100);
}

TEST_CASE_FIXTURE(OnSmall, "messages: the text of a failed system call, with its code") {
    const std::string missing = "ENOENT (2): No such file or directory";
    const auto refused = [&](const char* directory) {
        return text_of<DriverError>([&] { (void)saver.arena("f", FileBackup{.directory = directory}); });
    };
    CHECK(refused("/nowhere") == "use the directory of a FileBackup (/nowhere) failed: " + missing);
    CHECK(contains(refused("/etc/passwd"), "ENOTDIR (20): Not a directory"));
    CHECK(saver.usage().size() == 0); // no tag was made
    CHECK(tag_named([&] { (void)saver.arena("f", FileBackup{.directory = "/nowhere"}); }) == "f");
    (void)saver.arena("f", FileBackup{.directory = "/tmp"});
    const Buffer<char> once{saver.arena("once"), 100};
    check_says<DriverError>("(/nowhere) failed: " + missing,
                            [&] { (void)saver.pause("once", {.bytes = FileBackup{.directory = "/nowhere"}}); });
    CHECK(row_of(saver, "once").state == "active");
    const Buffer<char> loaded{saver.arena("loaded", FileSource{}), 100};
    check_says<DriverError>(missing, [&] { saver.load(loaded.data(), 100, "/nowhere/x"); });
}

TEST_CASE_FIXTURE(OnSmall, "messages: calls after a lost device say that it is lost") {
    const Arena arena = saver.arena("w");
    const Buffer<char> block{arena, 100};
    driver.lose();
    const std::function<void()> calls[] = {[&] { (void)arena.allocate(32_MiB); }, [&] { (void)saver.arena("new"); },
                                           [&] { (void)saver.pause("w"); }, [&] { (void)saver.trim(); }};
    for (const auto& call : calls)
        check_ends(text_of<DeviceLost>(call), "HOST_ERROR_ILLEGAL_ADDRESS (700): the device is lost, by this call or "
                                              "before it; backups stay readable, and close() works");
    saver.close();
}

TEST_CASE_FIXTURE(OnSmall, "messages: elastic memory that is not committed, and sizes that are valid") {
    const Arena arena = saver.arena("kv");
    Elastic elastic = arena.elastic(64_MiB, {.granularity = 2_MiB});
    elastic.commit(0, 4_MiB);
    char* const uncommitted = static_cast<char*>(elastic.data()) + 8_MiB;
    const std::string no_block = "no live block contains this address, nor a committed part of an elastic range";
    check_says<Misuse>(no_block, [&] { saver.load(uncommitted, 10, "/etc/passwd"); });
    check_says<Misuse>(no_block, [&] { (void)saver.backup_view(uncommitted, 10); });
    check_says<Misuse>(no_block, [&] { (void)saver.gate(uncommitted, 10); });
    check_says<Misuse>("the granularity may be 1 byte to 64.00 PiB, and is rounded up to a multiple of 2.00 MiB",
                       [&] { (void)arena.elastic(64_MiB, {.granularity = 0}); });
    for (const std::size_t bytes : {std::size_t{0}, ~std::size_t{0}})
        check_says<Misuse>("the size may be 1 byte to 64.00 PiB, and is rounded up to a multiple of the granularity",
                           [&] { (void)arena.elastic(bytes, {.granularity = 2_MiB}); });
    for (const std::size_t unit : {std::size_t{0}, std::size_t{512}, 3_MiB})
        check_says<Misuse>("valid are powers of two of at least ", [&] {
            const HostDriver machine{64_MiB, {.granularity = unit}};
        });
    CHECK(driver.enqueue({}, address_of(uncommitted), 100, [] {}).ok());
    CHECK(!driver.drain().ok());
    REQUIRE(driver.violations().size() == 1);
    CHECK(contains(driver.violations()[0], "elastic and not committed"));
    CHECK(contains(driver.violations()[0], "tag \"kv\""));
}
} // namespace saver_messages_test
