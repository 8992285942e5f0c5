// The messages of exceptions and events.
#include "support/machines.hpp"
#include "support/vanished.hpp"

namespace saver_messages_test {
using namespace test;

std::string tag_named(const std::function<void()>& act) {
    try {
        act();
    } catch (const Error& error) {
        return error.tag();
    }
    return "nothing was thrown";
}

void check_ends(const std::string& text, const std::string& end) { CHECK_MESSAGE(text.ends_with(end), text); }

TEST_CASE("messages: preparing and invalidating a tag that keeps nothing") {
    MemorySaver saver{HostDriver{64_MiB}};
    (void)saver.arena("kv", Discard{});
    (void)saver.arena("w", HostBackup{});
    const std::string why = "tag \"kv\" has the policy \"discard\", which keeps no bytes";
    CHECK(contains(text_of<Misuse>([&] { saver.prepare(Tags{"w", "kv"}); }), why));
    CHECK(contains(text_of<Misuse>([&] { saver.invalidate("kv"); }), why));
    saver.prepare(); // every tag that keeps bytes
    saver.invalidate(Tags::under("k"));
    TaggedArena<HostDriver, Zero> zero{HostDriver{64_MiB}, "z"};
    CHECK_THROWS_AS(zero.prepare(), Misuse);
}

TEST_CASE("messages: a warning, once for each tag, that bytes are dropped by a default policy") {
    Told told;
    const auto cycles = [](auto& saver) {
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
    };
    MemorySaver saver{HostDriver{64_MiB}, {.events = told.sink()}};
    cycles(saver);
    REQUIRE(told.of(EventKind::warned).size() == 1);
    CHECK(told.of(EventKind::warned)[0].tag == "unsaid");
    told.clear();
    MemorySaver with_default{HostDriver{64_MiB}, {.default_policy = Discard{}, .events = told.sink()}};
    cycles(with_default);
    CHECK(told.of(EventKind::warned).empty());
}

TEST_CASE("new tags: with NewTags::with_policy only a use that names a policy makes one") {
    for (const bool enabled : {true, false}) {
        CAPTURE(enabled);
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
        CHECK(contains(text_of<Misuse>([&] { (void)saver.arena("x", ArenaOptions{.capacity = 2_MiB}); }), "\"x\""));
        CHECK(contains(text_of<Misuse>([&] { (void)capture(saver, "graph", StreamRef{}, [] {}); }), "\"graph\""));
        CHECK(saver.usage().size() == 1);
        const Region kv = saver.region("kv", Discard{});
        saver.drop("weights");
        CHECK_THROWS_AS((void)saver.arena("weights"), Misuse); // unknown again
        CHECK(saver.arena("weights", Zero{}).tag() == "weights");
    }
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

TEST_CASE("messages: errors name the tag") {
    MemorySaver saver{HostDriver{64_MiB}};
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

TEST_CASE("messages: a stream that the device does not know is named") {
    const HostDriver driver{16_MiB};
    const HostDriver other{16_MiB};
    const OwnStream stranger{other};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("tag");
    void* const block = arena.allocate(1_MiB);
    const std::string named =
        "stream " + format_address(reinterpret_cast<std::uintptr_t>(StreamRef{stranger}.native()));
    const std::vector<std::function<void()>> asks = {[&] { arena.deallocate(block, stranger); },
                                                     [&] { saver.use("tag").until(stranger); },
                                                     [&] { (void)saver.pause("tag", {.order = after(stranger)}); }};
    for (std::size_t i = 0; i < asks.size(); ++i) {
        CAPTURE(i);
        const std::string text = text_of<Error>(asks[i]);
        CHECK_MESSAGE(contains(text, named), text);
        CHECK_MESSAGE(contains(text, "an open stream of device 0"), text);
    }
    arena.deallocate(block);
}

TEST_CASE("messages: NotIdle of one tag names it, of several none; and so do failed waits") {
    const HostDriver driver{256_MiB};
    MemorySaver saver{driver};
    const Buffer<char> a{saver.arena("a"), 100};
    const OwnStream stream{driver};
    REQUIRE(driver.hold(stream).ok());
    REQUIRE(driver.enqueue(stream, [] {}).ok());
    const PauseOptions at_once{.timeout = std::chrono::nanoseconds{0}};
    CHECK(tag_named([&] { (void)saver.pause("a", at_once); }) == "a");
    CHECK(tag_named([&] { (void)saver.pause({}, at_once); }) == "nothing was thrown");
    CHECK(tag_named([&] { (void)saver.pause(Tags::all(), at_once); }) == "a"); // the only one that has memory
    const Buffer<char> b{saver.arena("b"), 100};
    CHECK(tag_named([&] { (void)saver.pause({"a", "b"}, at_once); }).empty());
    REQUIRE(driver.let_go(stream).ok());
    REQUIRE(driver.drain().ok());
    REQUIRE(driver.begin_capture(stream, CaptureMode::relaxed).ok());
    CHECK(tag_named([&] { (void)saver.pause("b", {.order = after(stream)}); }) == "b");
    GraphRef graph;
    REQUIRE(driver.end_capture(stream, graph).ok());
    REQUIRE(driver.close_graph(graph).ok());
}

TEST_CASE("messages: a call that an open capture refuses names the captured tag") {
    const HostDriver driver{64_MiB};
    MemorySaver saver{driver};
    (void)saver.arena("w");
    const OwnStream stream{driver};
    std::vector<std::string> named;
    {
        const Graph graph = capture(saver, "graph", stream, [&] {
            named.push_back(tag_named([&] { (void)saver.pause("w"); }));
            named.push_back(tag_named([&] { saver.drop("w"); }));
            named.push_back(tag_named([&] { (void)capture(saver, "second", stream, [] {}); }));
        });
    }
    CHECK(named == std::vector<std::string>{"graph", "graph", "second"});
    CHECK(text_of<Misuse>([&] { (void)capture(saver, "graph", StreamRef{}, [] {}); }) ==
          "capture of tag \"graph\": the default stream cannot be captured; pass a stream that the program created");
    CHECK(driver.violations().empty());
}

TEST_CASE("messages: the columns of the table stay apart") {
    MemorySaver saver{HostDriver{64_MiB}};
    const std::string tag = "a tag whose name is longer than any column";
    const Buffer<char> a{saver.arena(tag, Discard{.poison = 1}), 1 << 20};
    (void)saver.pause();
    const Buffer<char> b{saver.arena(tag), 1 << 20};
    const std::string out = printed(saver.usage());
    CHECK(contains(out, tag + "  "));
    CHECK(contains(out, "discard (poisoned)  partly paused  "));
}

TEST_CASE("messages: OutOfMemory says who holds the device's memory, and that no other tag is paused for it") {
    const HostDriver driver{64_MiB};
    MemorySaver saver{driver};
    CHECK(!contains(text_of<OutOfMemory>([&] { (void)saver.arena("first").allocate(100_MiB); }), "held")); // nobody
    const Buffer<char> weights{saver.arena("weights"), 30_MiB};
    const std::string advice =
        "; allocations and resumes pause no other tag by themselves, only uses do: pause one, call reclaim, set "
        "evict_for_allocations, or set on_no_room";
    const Arena arena = saver.arena("x");
    Elastic elastic = arena.elastic(256_MiB);
    const std::vector<std::function<void()>> asks = {
        [&] { (void)arena.allocate(40_MiB); },
        [&] { elastic.commit(0, 64_MiB); },
        [&] { (void)saver.arena("reserving", ArenaOptions{.reserve = 40_MiB}); },
        [&] { (void)Region{arena}.allocate(40_MiB); },
    };
    for (const auto& ask : asks) {
        check_ends(text_of<OutOfMemory>(ask), "; held: \"weights\" 30.00 MiB" + advice);
        const auto error = thrown<OutOfMemory>(ask);
        REQUIRE(error.holders().size() == 1);
        CHECK(error.holders()[0].tag == "weights");
    }
    // The tag's own memory is no reason to pause another one.
    check_ends(text_of<OutOfMemory>([&] { (void)saver.arena("weights").allocate(40_MiB); }),
               "; held: \"weights\" 30.00 MiB");
    // Another saver's memory has no name here.
    MemorySaver other{driver};
    check_ends(text_of<OutOfMemory>([&] { (void)other.arena("y").allocate(40_MiB); }),
               "; held: 30.00 MiB outside this saver's tags");
    const Buffer<char> theirs{other.arena("y"), 20_MiB};
    check_ends(text_of<OutOfMemory>([&] { (void)arena.allocate(40_MiB); }),
               "; held: \"weights\" 30.00 MiB, 20.00 MiB outside this saver's tags" + advice);
    (void)other.pause();
    // A resume, and one of several tags with another saver in the way.
    (void)saver.pause("weights");
    const Buffer<char> cache{saver.arena("cache"), 50_MiB};
    check_ends(text_of<OutOfMemory>([&] { (void)saver.resume(); }), "; held: \"cache\" 50.00 MiB" + advice);
    check_ends(text_of<OutOfMemory>([&] { (void)saver.resume_async("weights").wait(); }),
               "; held: \"cache\" 50.00 MiB" + advice);
    check_ends(text_of<OutOfMemory>([&] { (void)saver.exchange({}, "weights"); }),
               "; held: \"cache\" 50.00 MiB" + advice);
    // What may be evicted is told from what may not, once some tag may be.
    saver.set_evictable("weights", true);
    check_ends(text_of<OutOfMemory>([&] { (void)saver.resume(); }),
               "; held: \"cache\" 50.00 MiB not evictable" + advice);
    check_ends(text_of<OutOfMemory>([&] { const Use use = saver.use("weights"); }),
               "; held: \"cache\" 50.00 MiB not evictable");
}

TEST_CASE("messages: OutOfMemory of a saver that is switched off, and of a TaggedArena, says who holds memory") {
    const HostDriver driver{64_MiB};
    MemorySaver off{driver, {.enabled = false}};
    const Buffer<char> weights{off.arena("weights"), 30_MiB};
    TaggedArena<HostDriver, Discard> alone{driver, "alone"};
    void* const block = alone.allocate(20_MiB);
    check_ends(text_of<OutOfMemory>([&] { (void)off.arena("x").allocate(40_MiB); }),
               "; held: \"weights\" 30.00 MiB, 20.00 MiB outside this saver's tags");
    const auto error = thrown<OutOfMemory>([&] { (void)alone.allocate(40_MiB); });
    check_ends(error.what(), "; held: \"alone\" 20.00 MiB, 30.00 MiB outside this tag");
    REQUIRE(error.holders().size() == 1);
    CHECK(error.holders()[0].tag == "alone");
    CHECK(error.tag() == "alone");
    (void)alone.pause();
    const Buffer<char> cache{off.arena("cache"), 20_MiB};
    check_ends(text_of<OutOfMemory>([&] { (void)alone.resume(); }), "; held: 50.00 MiB outside this tag");
    check_ends(text_of<OutOfMemory>([&] {
                   const TaggedArena<HostDriver, Discard> more{driver, "more", Discard{}, {.reserve = 40_MiB}};
               }),
               "; held: 50.00 MiB outside this tag");
    alone.deallocate(block);
}

TEST_CASE("messages: OutOfMemory speaks of the device that had no room, and of a peer's backup names devices") {
    const HostDriver first{64_MiB};
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{first};
    const Buffer<char> here{saver.arena("here", PeerBackup{second}), 30_MiB};
    const Buffer<char> there{saver.arena("there", Discard{}, second), 50_MiB};
    const std::string text = text_of<OutOfMemory>([&] { (void)saver.arena("there").allocate(40_MiB); });
    const std::string on_first = text_of<OutOfMemory>([&] { (void)saver.arena("x").allocate(40_MiB); });
    CHECK_MESSAGE(contains(on_first, "; held: \"here\" 30.00 MiB; "), on_first);
    CHECK(!contains(on_first, "there"));
    const std::string on_second =
        text_of<OutOfMemory>([&] { (void)saver.arena("y", Discard{}, second).allocate(40_MiB); });
    CHECK_MESSAGE(contains(on_second, "; held: \"there\" 50.00 MiB; "), on_second);
    const std::string peer = text_of<OutOfMemory>([&] { (void)saver.pause("here"); });
    CHECK_MESSAGE(contains(peer, "; held: \"there\" 50.00 MiB not evictable on device 1, \"here\" 30.00 MiB not "
                                 "evictable on device 0"),
                  peer);
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

TEST_CASE("messages: the text of a failed system call, with its code") {
    MemorySaver saver{HostDriver{64_MiB}};
    const auto refused = [&](const char* directory) {
        return text_of<DriverError>([&] { (void)saver.arena("f", FileBackup{.directory = directory}); });
    };
    CHECK(refused("/nowhere") == "use the directory of a FileBackup (/nowhere) failed: ENOENT (2): No such "
                                 "file or directory");
    CHECK(contains(refused("/etc/passwd"), "ENOTDIR (20): Not a directory"));
    CHECK(saver.usage().size() == 0); // no tag was made
    CHECK(tag_named([&] { (void)saver.arena("f", FileBackup{.directory = "/nowhere"}); }) == "f");
    (void)saver.arena("f", FileBackup{.directory = "/tmp"});
    const Buffer<char> once{saver.arena("once"), 100};
    CHECK(contains(
        text_of<DriverError>([&] { (void)saver.pause("once", {.bytes = FileBackup{.directory = "/nowhere"}}); }),
        "(/nowhere) failed: ENOENT (2): No such file or directory"));
    CHECK(row_of(saver, "once").state == "active");
    const Buffer<char> loaded{saver.arena("loaded", FileSource{}), 100};
    CHECK(contains(text_of<DriverError>([&] { saver.load(loaded.data(), 100, "/nowhere/x"); }),
                   "ENOENT (2): No such file or directory"));
}

TEST_CASE("messages: calls after a lost device say that it is lost") {
    const HostDriver driver{64_MiB};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("w");
    const Buffer<char> block{arena, 100};
    driver.lose();
    const std::vector<std::function<void()>> calls = {[&] { (void)arena.allocate(32_MiB); },
                                                      [&] { (void)saver.arena("new"); },
                                                      [&] { (void)saver.pause("w"); }, [&] { (void)saver.trim(); }};
    for (std::size_t i = 0; i < calls.size(); ++i) {
        CAPTURE(i);
        const std::string text = text_of<DeviceLost>(calls[i]);
        CHECK_MESSAGE(text.ends_with("HOST_ERROR_ILLEGAL_ADDRESS (700): the device is lost, by this call or before it; "
                                     "backups stay readable, and close() works"),
                      text);
    }
    saver.close();
}

TEST_CASE("messages: elastic memory that is not committed, and sizes that are valid") {
    const HostDriver driver{64_MiB};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("kv");
    Elastic elastic = arena.elastic(64_MiB, {.granularity = 2_MiB});
    elastic.commit(0, 4_MiB);
    char* const uncommitted = static_cast<char*>(elastic.data()) + 8_MiB;
    const std::string no_block = "no live block contains this address, nor a committed part of an elastic range";
    CHECK(contains(text_of<Misuse>([&] { saver.load(uncommitted, 10, "/etc/passwd"); }), no_block));
    CHECK(contains(text_of<Misuse>([&] { (void)saver.backup_view(uncommitted, 10); }), no_block));
    CHECK(contains(text_of<Misuse>([&] { (void)saver.gate(uncommitted, 10); }), no_block));
    CHECK(contains(text_of<Misuse>([&] { (void)arena.elastic(64_MiB, {.granularity = 0}); }),
                   "the granularity may be 1 byte to 64.00 PiB, and is rounded up to a multiple of 2.00 MiB"));
    for (const std::size_t bytes : {std::size_t{0}, ~std::size_t{0}}) {
        CHECK(contains(text_of<Misuse>([&] { (void)arena.elastic(bytes, {.granularity = 2_MiB}); }),
                       "the size may be 1 byte to 64.00 PiB, and is rounded up to a multiple of the granularity"));
    }
    for (const std::size_t unit : {std::size_t{0}, std::size_t{512}, 3_MiB}) {
        CHECK(contains(text_of<Misuse>([&] {
                           (void)HostDriver{64_MiB, {.granularity = unit}};
                       }),
                       "valid are powers of two of at least "));
    }
    CHECK(driver.enqueue({}, reinterpret_cast<Address>(uncommitted), 100, [] {}).ok());
    CHECK(!driver.drain().ok());
    REQUIRE(driver.violations().size() == 1);
    CHECK(contains(driver.violations()[0], "elastic and not committed"));
    CHECK(contains(driver.violations()[0], "tag \"kv\""));
}
} // namespace saver_messages_test
