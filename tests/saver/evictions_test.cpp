// Evictions for allocations and resumes: SaverOptions::evict_for_allocations.
#include "graph/graph_support.hpp"
#include "saver/tags_world.hpp"
#include "support/each_of.hpp"

#include <concepts>

namespace saver_evictions_test {
using namespace test;
using D = MachineDriver;
using Saver = MemorySaver<D>;
using World = TagsWorld;
constexpr std::size_t all = 40_MiB; // of memory
const SaverOptions evicting{.evict_for_allocations = true};
const ArenaOptions evictable{.evictable = true};

static_assert(std::convertible_to<bool, EvictForAllocations> && std::convertible_to<EvictForAllocations, bool>);
static_assert(!std::convertible_to<int, EvictForAllocations> && !std::convertible_to<void*, EvictForAllocations>);

/// Calls that take 12 MiB, each in a saver whose tags "a", "b" and "c" are active, and "away", of 12 MiB, is paused.
struct Taker {
    const char* name;
    void (*call)(Saver&);
};
const std::vector<Taker> takers = {
    {"allocate", [](Saver& s) { (void)s.arena("new").allocate(each); }},
    {"allocate with a stream", [](Saver& s) { (void)s.arena("new").allocate(each, StreamRef{}); }},
    {"region", [](Saver& s) { (void)s.region("new").allocate(each); }},
    {"reserve", [](Saver& s) { (void)s.arena("new", Discard{}, ArenaOptions{.reserve = each}); }},
    {"outside", [](Saver& s) { (void)s.outside().allocate(each); }},
    {"commit", [](Saver& s) { s.arena("new").elastic(1_GiB, {.granularity = 2_MiB}).commit(0, each); }},
    {"resize", [](Saver& s) { s.arena("new").elastic(1_GiB, {.granularity = 2_MiB}).resize(each); }},
    {"workspace", [](Saver& s) { (void)WorkspacePool{s.arena("new")}.get("w", each); }},
    {"resume", [](Saver& s) { (void)s.resume("away"); }},
    {"resume_async", [](Saver& s) { s.resume_async("away").wait(); }},
    {"exchange",
     [](Saver& s) {
         (void)s.arena("small", HostBackup{.threads = 1}).allocate(2_MiB);
         (void)s.exchange("small", "away");
     }},
};

/// A machine whose three evictable tags fill it.
struct OnFull {
    World world{{}, evicting};
    Saver& saver = *world.saver;

    OnFull() { world.fill({"a", "b", "c"}); }
};

/// A machine that evicts, and is empty.
struct OnWorld {
    World world{{}, evicting};
    Saver& saver = *world.saver;
};

/// With a tag that is paused, and the three that are active.
void prepare(World& world) {
    world.add("away", HostBackup{.threads = 1});
    world.fill({"a", "b", "c"});
}

TEST_CASE_FIXTURE(OnWorld,
                  "evictions: every call that takes memory pauses the least recently used tag, and only that") {
    const Taker taker = each_of(takers);
    prepare(world);
    world.use_each({"a", "c", "b"});
    taker.call(saver);
    CHECK(world.states({"a", "b", "c"}) == "011");
    CHECK(world.evictions() == 1);
    CHECK(world.whole("b"));
    (void)saver.pause({"b", "c"}, {.order = already_idle});
    (void)saver.resume("a");
    CHECK(world.whole("a"));
}

TEST_CASE("evictions: off by default, and if switched off") {
    const Taker taker = each_of(takers);
    World world{{}};
    prepare(world);
    check_says<OutOfMemory>("pause no other tag by themselves", [&] { taker.call(*world.saver); });
    CHECK(world.states({"a", "b", "c"}) == "111");
    CHECK(world.evictions() == 0);
    CHECK((!EvictForAllocations{} && EvictForAllocations{true} && !EvictForAllocations{false}));
    MemorySaver off{HostDriver{all}, {.enabled = false, .evict_for_allocations = true}};
    const Arena a = off.arena("a", HostBackup{}, evictable);
    const Buffer<char> block{a, 30_MiB};
    CHECK_THROWS_AS((void)a.allocate(30_MiB), OutOfMemory);
}

TEST_CASE("evictions: priority first, then age; unused memory is released before anything is paused") {
    World world{{}, evicting, 52_MiB};
    world.fill({"low", "old", "new"});
    world.saver->set_priority("low", -1);
    world.fill("high", {.evictable = true, .priority = 1});
    world.use_each({"high", "old", "new", "low"});
    const Arena arena = world.saver->arena("x");
    arena.deallocate(arena.allocate(4_MiB));
    { const Buffer<char> freed{world.saver->arena("y"), 4_MiB}; } // only one of the two at a time
    CHECK(world.evictions() == 0);
    std::vector<Buffer<char>> taken;
    std::string gone;
    for (int i = 0; i < 4; ++i) {
        taken.emplace_back(world.saver->arena("z"), each);
        gone += world.states({"low", "old", "new", "high"}) + ' ';
    }
    CHECK(gone == "0111 0011 0001 0000 ");
    CHECK_THROWS_AS((void)world.saver->arena("z").allocate(each), OutOfMemory);
}

TEST_CASE("evictions: several tags are paused for one call, but none that turns out not to be needed") {
    World world{{}, evicting};
    world.fill("little", {.evictable = true});
    world.fill("second");
    world.fill("third");
    { const Use use = world.saver->use("little"); }
    const Buffer<char> big{world.saver->arena("big"), 26_MiB};
    CHECK(world.evictions() == 2);
    World other{{}, evicting, 64_MiB};
    other.fill("small", {.evictable = true, .priority = -1});
    other.fill("large", {.evictable = true}, 40_MiB);
    const Buffer<char> block{other.saver->arena("x"), 40_MiB};
    CHECK(other.states({"small", "large"}) == "10");
}

TEST_CASE_FIXTURE(OnWorld,
                  "evictions: if all idle tags do not suffice, none is paused, and the text says what can be done") {
    world.fill("idle");
    world.fill("used");
    world.fill("kept", {});
    const Use use = saver.use("used");
    const Arena arena = saver.arena("x");
    for (const std::size_t bytes : {20_MiB, 1_GiB}) {
        const std::string text = text_of<OutOfMemory>([&] { (void)arena.allocate(bytes); });
        for (const char* part :
             {"\"idle\" 12.00 MiB idle", "\"used\" 12.00 MiB in use by 1", "\"kept\" 12.00 MiB not evictable"})
            CHECK_MESSAGE(contains(text, part), text);
        CHECK_MESSAGE(text.ends_with("; allocations and resumes pause only tags that are idle and may be evicted, and "
                                     "those do not suffice: end uses, call set_evictable, or set on_no_room"),
                      text);
    }
    CHECK(world.states({"idle", "used", "kept"}) == "111");
    CHECK(world.evictions() == 0);
    (void)arena.allocate(each);
    CHECK(world.states({"idle", "used", "kept"}) == "011");
    CHECK_THROWS_AS((void)arena.allocate(each), OutOfMemory);
    CHECK(world.whole("used"));
}

TEST_CASE_FIXTURE(OnFull, "evictions: the tag that allocates stays") {
    world.use_each({"a", "b", "c"});
    const Arena a = saver.arena("a"); // used longest ago
    (void)a.allocate(each);
    CHECK(world.states({"a", "b", "c"}) == "101");
    {
        const Use use = saver.use("a"); // nor does a thread wait for a use of its own
        CHECK_THROWS_AS((void)a.allocate(30_MiB), OutOfMemory);
    }
    CHECK_THROWS_AS((void)a.allocate(30_MiB), OutOfMemory);
    CHECK(world.states({"a", "b", "c"}) == "101");
}

TEST_CASE_FIXTURE(OnFull, "evictions: tags that are resumed stay") {
    (void)saver.pause("b", {.order = already_idle});
    const Buffer<char> other{saver.arena("x"), each};
    world.use_each({"c"});
    CHECK(saver.resume({"a", "b"}).mapped_bytes == each); // "a" was used longest ago, and is wanted too
    CHECK(world.states({"a", "b", "c"}) == "110");
    CHECK_THROWS_AS((void)saver.resume(), OutOfMemory); // all are wanted
    CHECK(world.states({"a", "b", "c"}) == "110");
}

TEST_CASE_FIXTURE(OnFull,
                  "evictions: hooks run on the calling thread, evict nothing, and one that throws keeps its tag") {
    std::string told;
    const auto here = std::this_thread::get_id();
    const auto note = [&](const char* what) {
        return [&, what](PauseEvent& event) {
            CHECK(std::this_thread::get_id() == here);
            if (what[0] == 'b') CHECK_THROWS_AS((void)saver.arena("hook's").allocate(each), OutOfMemory);
            for (const std::string& tag : event.tags) told += what + tag + "; ";
            if (what[0] == 'b' && event.tags.at(0) == "a") throw std::runtime_error{"not this one"};
        };
    };
    const Hook before = saver.before_pause(note("before "));
    const Hook after = saver.after_pause(note("after "));
    const Hook failed = saver.after_failed_pause(note("failed "));
    (void)saver.arena("x").allocate(each);
    CHECK(world.states({"a", "b", "c"}) == "101");
    CHECK(told == "before a; failed a; before b; after b; ");
    const Hook late = saver.after_pause([](PauseEvent&) { throw std::runtime_error{"afterwards"}; });
    CHECK_THROWS_AS((void)saver.arena("y").allocate(each), std::runtime_error);
    CHECK(world.states({"a", "b", "c"}) == "100");
}

TEST_CASE_FIXTURE(OnWorld, "evictions: the owner of elastic memory is asked only if they do not suffice") {
    int asked = 0;
    Elastic kv;
    kv = saver.arena("kv").elastic(1_GiB, {.granularity = 2_MiB, .on_reclaim = [&](std::size_t bytes) {
                                               asked += 1;
                                               kv.resize(0, already_idle);
                                               return bytes;
                                           }});
    kv.commit(0, each);
    world.fill("idle");
    const Buffer<char> first{saver.arena("x"), 20_MiB};
    CHECK(asked == 0);
    CHECK(!world.here("idle"));
    const Buffer<char> second{saver.arena("y"), each};
    CHECK(asked == 1);
}

TEST_CASE_FIXTURE(OnFull, "evictions: while a capture is open, nothing is paused") {
    const OwnStream stream{world.driver};
    (void)capture(saver, "graph", stream, [&] { CHECK_THROWS_AS((void)saver.arena("x").allocate(each), OutOfMemory); });
    CHECK(world.states({"a", "b", "c"}) == "111");
    (void)saver.arena("x").allocate(each);
    CHECK(world.evictions() == 1);
}

TEST_CASE_FIXTURE(OnWorld, "evictions: marked work is waited for, by a resume no longer than room_within") {
    world.add("away", HostBackup{.threads = 1}, evictable);
    world.fill("a");
    const HeldStream busy{world.driver};
    saver.use("a").until(busy.get());
    const Buffer<char> other{saver.arena("x"), 20_MiB};
    CHECK_THROWS_AS((void)saver.resume("away", {.room_within = 5ms}), OutOfMemory);
    CHECK(world.states({"a", "away"}) == "10");
    Turnstile asked;
    asked.open();
    world.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::query) asked.pass();
    });
    Doing allocating{[&] { (void)saver.arena("y").allocate(each); }};
    asked.await(); // the mark is queried
    CHECK(!allocating.over());
    world.driver.on_call({});
    busy.let_go();
    allocating.join();
    CHECK(!world.here("a"));
}

TEST_CASE_FIXTURE(OnWorld, "evictions: a thread that lacks memory while another one evicts looks again afterwards") {
    world.fill("a");
    world.fill("kept", {}, 24_MiB);
    Turnstile hooked;
    const Hook hook = saver.before_pause([&](PauseEvent&) { hooked.pass(); });
    Doing first{[&] { (void)saver.arena("x").allocate(6_MiB); }}; // pauses "a" for both
    hooked.await();
    Turnstile refused;
    refused.open();
    world.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::create) refused.pass();
    });
    Doing second{[&] { (void)saver.arena("y").allocate(6_MiB); }};
    refused.await();
    world.driver.on_call({});
    hooked.open();
    first.join();
    second.join();
    CHECK(world.evictions() == 1);
}

TEST_CASE_FIXTURE(OnTwo, "evictions: only the device that lacks memory is relieved") {
    MemorySaver evicts{first.driver, evicting};
    const HostBackup policy{.threads = 1};
    (void)evicts.arena("near", policy, first.driver, evictable).allocate(200_MiB);
    (void)evicts.arena("far", policy, second.driver, evictable).allocate(200_MiB);
    (void)evicts.arena("x", Discard{}, second.driver).allocate(400_MiB);
    CHECK(row_of(evicts, "near").state == "active");
    CHECK(row_of(evicts, "far").state == "paused");
}

TEST_CASE("evictions: threads that allocate, resume and use under pressure end, and no bytes are lost") {
    const Checked machine{HostDriver{64_MiB, {.poison = true, .late = true}}};
    // Each thread takes at most 8 MiB at a time beside its tag, so that there is always room for all of them.
    constexpr std::size_t threads = 3;
    MemorySaver one{machine.driver, evicting};
    const auto name = [](std::size_t i) { return "tag " + std::to_string(i); };
    std::vector<Filled<D>> blocks;
    for (std::size_t i = 0; i < 2 * threads; ++i)
        blocks.emplace_back(machine.driver, one.arena(name(i), HostBackup{.threads = 1}, evictable), 8_MiB, i + 1);
    std::atomic<int> wrong{0};
    Threads running{threads, [&](std::size_t t) {
                        for (std::size_t round = 0; round < 20; ++round) {
                            const std::size_t i = (t + round) % (2 * threads);
                            const Arena own = one.arena("own " + std::to_string(t));
                            void* const block = own.allocate(8_MiB);
                            {
                                const Use use = one.use(name(i));
                                wrong += blocks[i].whole() ? 0 : 1;
                            }
                            own.deallocate(block, already_idle);
                        }
                    }};
    running.join();
    CHECK(wrong.load() == 0);
    CHECK(one.usage().residency().evictions != 0);
}

/// "in" is paused, and the backup of "a", which is used before "b", finds no room: on a full device, or on the host.
struct NoBackup {
    explicit NoBackup(bool on_peer, std::size_t of_a = 24_MiB) {
        (void)saver.arena("in", Discard{}).allocate(16_MiB);
        (void)saver.pause("in");
        (void)saver.arena("a", on_peer ? AnyPolicy{PeerBackup{peer}} : AnyPolicy{HostBackup{}}).allocate(of_a);
        (void)saver.use("a");
        if (on_peer) return;
        driver.fail({.call = Call::map_host, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
    }
    void add_another() {
        (void)saver.arena("b", Discard{}).allocate(32_MiB);
        (void)saver.use("b");
    }
    std::string state(const char* tag) { return row_of(saver, tag).state; }

    const HostDriver peer{8_MiB, {.device = 1}};
    const D driver{HostDriver{64_MiB}};
    Saver saver{driver, evicting};
};

TEST_CASE("evictions: a victim whose backup finds no room is passed by, and others make room") {
    const Taker taker = each_of(std::vector<Taker>{
        {"use", [](Saver& s) { (void)s.use("in", {.room_within = 5s}); }},
        {"allocate", [](Saver& s) { (void)s.arena("new").allocate(16_MiB); }},
        {"reclaim", [](Saver& s) { CHECK(s.reclaim(16_MiB).bytes() >= 16_MiB); }},
    });
    for (const bool on_peer : {true, false}) {
        NoBackup on{on_peer};
        on.add_another();
        CHECK_NOTHROW(taker.call(on.saver));
        CHECK(on.state("a") == "active");
        CHECK(on.state("b") == "paused");
    }
    NoBackup on{false, 56_MiB}; // if there is no other, what the backup lacks is said
    CHECK_THROWS_AS((void)on.saver.use("in"), OutOfHostMemory);
    CHECK_THROWS_AS((void)on.saver.reclaim(16_MiB), OutOfHostMemory);
    CHECK(on.state("a") == "active");
}

TEST_CASE("evictions: after a victim without host memory a use does not wait for the device, and its memory is found") {
    CHECK(within_seconds(30, [] {
        NoBackup on{false, 1_MiB};
        Saver& saver = on.saver;
        void* const block = saver.arena("a").allocate(23_MiB);
        on.add_another();
        {
            const HeldStream held{on.driver};
            (void)saver.use("in", {.room_within = 1s});
        }
        saver.deallocate(block, already_idle);
        (void)saver.pause("b");
        return saver.use("in") && saver.arena("new").allocate(40_MiB) != nullptr;
    }));
}
} // namespace saver_evictions_test
