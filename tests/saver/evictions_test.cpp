// Evictions for allocations and resumes: SaverOptions::evict_for_allocations.
#include "graph/graph_support.hpp"
#include "saver/tags_world.hpp"

#include <concepts>

namespace saver_evictions_test {
using namespace test;
using D = MachineDriver;
using World = TagsWorld;
constexpr std::size_t all = 40_MiB; // of memory
const SaverOptions evicting{.evict_for_allocations = true};

static_assert(std::convertible_to<bool, EvictForAllocations> && std::convertible_to<EvictForAllocations, bool>);
static_assert(!std::convertible_to<int, EvictForAllocations> && !std::convertible_to<void*, EvictForAllocations>);

/// Calls that take 12 MiB, each in a saver whose tags "a", "b" and "c" are active, and "away", of 12 MiB, is paused.
const std::vector<std::function<void(World&)>> takers = {
    [](World& w) { (void)w.saver->arena("new").allocate(each); },
    [](World& w) { (void)w.saver->arena("new").allocate(each, StreamRef{}); },
    [](World& w) {
        const Region region = w.saver->region("new");
        (void)w.saver->allocate(each);
    },
    [](World& w) { (void)w.saver->arena("new", Discard{}, ArenaOptions{.reserve = each}); },
    [](World& w) {
        const auto outside = w.saver->outside();
        (void)w.saver->allocate(each);
    },
    [](World& w) {
        Elastic elastic = w.saver->arena("new").elastic(1_GiB, {.granularity = 2_MiB});
        elastic.commit(0, each);
    },
    [](World& w) {
        Elastic elastic = w.saver->arena("new").elastic(1_GiB, {.granularity = 2_MiB});
        elastic.resize(each);
    },
    [](World& w) {
        WorkspacePool pool{w.saver->arena("new")};
        (void)pool.get("w", each);
    },
    [](World& w) { (void)w.saver->resume("away"); },
    [](World& w) {
        const Arrival coming = w.saver->resume_async("away");
        coming.wait();
    },
    [](World& w) {
        (void)w.saver->arena("small", HostBackup{.threads = 1}).allocate(2_MiB);
        (void)w.saver->exchange("small", "away");
    },
};

void prepare(World& world) {
    world.fill("away", {});
    (void)world.saver->pause("away");
    world.fill({"a", "b", "c"});
}

TEST_CASE("evictions: every call that takes memory pauses the least recently used tag, and only that") {
    for (std::size_t i = 0; i < takers.size(); ++i) {
        CAPTURE(i);
        World world{{}, evicting};
        prepare(world);
        world.use_each({"a", "c", "b"});
        takers[i](world);
        CHECK(world.states({"a", "b", "c"}) == "011");
        CHECK(world.evictions() == 1);
        CHECK(world.whole("b"));
        (void)world.saver->pause({"b", "c"}, {.order = already_idle});
        (void)world.saver->resume("a");
        CHECK(world.whole("a"));
    }
}

TEST_CASE("evictions: off by default, and if switched off") {
    CHECK((!EvictForAllocations{} && EvictForAllocations{true} && !EvictForAllocations{false}));
    for (std::size_t i = 0; i < takers.size(); ++i) {
        CAPTURE(i);
        World world{{}};
        prepare(world);
        const std::string text = text_of<OutOfMemory>([&] { takers[i](world); });
        CHECK(world.states({"a", "b", "c"}) == "111");
        CHECK(world.evictions() == 0);
        CHECK_MESSAGE(contains(text, "pause no other tag by themselves"), text);
    }
    MemorySaver off{HostDriver{all}, {.enabled = false, .evict_for_allocations = true}};
    const Arena a = off.arena("a", HostBackup{}, ArenaOptions{.evictable = true});
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

TEST_CASE("evictions: if all idle tags do not suffice, none is paused, and the text says what can be done") {
    World world{{}, evicting};
    world.fill("idle");
    world.fill("used");
    world.fill("kept", {});
    const Use use = world.saver->use("used");
    const Arena arena = world.saver->arena("x");
    for (const auto& act : std::vector<std::function<void()>>{[&] { (void)arena.allocate(20_MiB); },
                                                              [&] { (void)arena.allocate(1_GiB); }}) {
        const std::string text = text_of<OutOfMemory>(act);
        CHECK_MESSAGE(contains(text, "\"idle\" 12.00 MiB idle"), text);
        CHECK_MESSAGE(contains(text, "\"used\" 12.00 MiB in use by 1"), text);
        CHECK_MESSAGE(contains(text, "\"kept\" 12.00 MiB not evictable"), text);
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

TEST_CASE("evictions: the tag that allocates stays, and so do those that are resumed or exchanged") {
    World world{{}, evicting};
    world.fill({"a", "b", "c"});
    world.use_each({"a", "b", "c"});
    const Arena a = world.saver->arena("a"); // used longest ago
    (void)a.allocate(each);
    CHECK(world.states({"a", "b", "c"}) == "101");
    {
        const Use use = world.saver->use("a"); // nor does a thread wait for a use of its own
        CHECK_THROWS_AS((void)a.allocate(30_MiB), OutOfMemory);
    }
    CHECK_THROWS_AS((void)a.allocate(30_MiB), OutOfMemory);
    CHECK(world.states({"a", "b", "c"}) == "101");
    World pair{{}, evicting};
    pair.fill({"a", "b", "c"});
    (void)pair.saver->pause("b", {.order = already_idle});
    const Buffer<char> other{pair.saver->arena("x"), each};
    pair.use_each({"c"});
    CHECK(pair.saver->resume({"a", "b"}).mapped_bytes == each); // "a" was used longest ago, and is wanted too
    CHECK(pair.states({"a", "b", "c"}) == "110");
    CHECK_THROWS_AS((void)pair.saver->resume(), OutOfMemory); // all are wanted
    CHECK(pair.states({"a", "b", "c"}) == "110");
}

TEST_CASE("evictions: hooks run on the calling thread, evict nothing, and one that throws keeps its tag") {
    World world{{}, evicting};
    world.fill({"a", "b", "c"});
    std::string told;
    const auto here = std::this_thread::get_id();
    const auto note = [&](const char* what) {
        return [&, what](PauseEvent& event) {
            CHECK(std::this_thread::get_id() == here);
            if (what[0] == 'b') CHECK_THROWS_AS((void)world.saver->arena("hook's").allocate(each), OutOfMemory);
            for (const std::string& tag : event.tags) told += what + tag + "; ";
            if (what[0] == 'b' && event.tags.at(0) == "a") throw std::runtime_error{"not this one"};
        };
    };
    const Hook before = world.saver->before_pause(note("before "));
    const Hook after = world.saver->after_pause(note("after "));
    const Hook failed = world.saver->after_failed_pause(note("failed "));
    (void)world.saver->arena("x").allocate(each);
    CHECK(world.states({"a", "b", "c"}) == "101");
    CHECK(told == "before a; failed a; before b; after b; ");
    const Hook late = world.saver->after_pause([](PauseEvent&) { throw std::runtime_error{"afterwards"}; });
    CHECK_THROWS_AS((void)world.saver->arena("y").allocate(each), std::runtime_error);
    CHECK(world.states({"a", "b", "c"}) == "100");
}

TEST_CASE("evictions: on_no_room may allocate, and is called after them") {
    int asked = 0;
    std::optional<MemorySaver<HostDriver>> saver;
    void* spare = nullptr;
    saver.emplace(HostDriver{all}, SaverOptions{.evict_for_allocations = true, .on_no_room = [&](const NoRoom& need) {
                                                    if (++asked > 1) return false;
                                                    CHECK(need.missing_bytes == each - 4_MiB);
                                                    (void)saver->arena("small").allocate(2_MiB);
                                                    saver->deallocate(spare, already_idle);
                                                    return true;
                                                }});
    (void)saver->arena("idle", Discard{}, ArenaOptions{.evictable = true}).allocate(each);
    spare = saver->arena("spare").allocate(each);
    const Buffer<char> first{saver->arena("x"), each};
    CHECK(asked == 0);
    const Buffer<char> second{saver->arena("x"), each};
    CHECK(asked == 0);
    CHECK(row_of(*saver, "idle").state == "paused");
    const Buffer<char> third{saver->arena("x"), each};
    CHECK(asked == 1);
    CHECK_THROWS_AS((void)saver->arena("x").allocate(each), OutOfMemory);
}

TEST_CASE("evictions: the owner of elastic memory is asked only if they do not suffice") {
    World world{{}, evicting};
    int asked = 0;
    Elastic kv;
    kv = world.saver->arena("kv").elastic(1_GiB, {.granularity = 2_MiB, .on_reclaim = [&](std::size_t bytes) {
                                                      asked += 1;
                                                      kv.resize(0, already_idle);
                                                      return bytes;
                                                  }});
    kv.commit(0, each);
    world.fill("idle");
    const Buffer<char> first{world.saver->arena("x"), 20_MiB};
    CHECK(asked == 0);
    CHECK(!world.here("idle"));
    const Buffer<char> second{world.saver->arena("y"), each};
    CHECK(asked == 1);
}

TEST_CASE("evictions: while a capture is open, nothing is paused") {
    World world{{}, evicting};
    world.fill({"a", "b", "c"});
    const OwnStream stream{world.driver};
    Graph graph = capture(*world.saver, "graph", stream,
                          [&] { CHECK_THROWS_AS((void)world.saver->arena("x").allocate(each), OutOfMemory); });
    CHECK(world.states({"a", "b", "c"}) == "111");
    graph = {};
    (void)world.saver->arena("x").allocate(each);
    CHECK(world.evictions() == 1);
}

TEST_CASE("evictions: marked work is waited for, by a resume no longer than room_within") {
    World world{{}, evicting};
    world.fill("away");
    (void)world.saver->pause("away", {.order = already_idle});
    world.fill("a");
    HeldStream busy{host_of(world.driver)};
    {
        Use use = world.saver->use("a");
        use.until(busy.get());
    }
    const Buffer<char> other{world.saver->arena("x"), 20_MiB};
    CHECK_THROWS_AS((void)world.saver->resume("away", {.room_within = 5ms}), OutOfMemory);
    CHECK(world.states({"a", "away"}) == "10");
    Turnstile asked;
    asked.open();
    world.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::query) asked.pass();
    });
    void* block = nullptr;
    Doing allocating{[&] { block = world.saver->arena("y").allocate(each); }};
    asked.await(); // the mark is queried
    CHECK(!allocating.over());
    world.driver.on_call({});
    busy.let_go();
    allocating.join();
    CHECK(block != nullptr);
    CHECK(!world.here("a"));
}

TEST_CASE("evictions: a thread that lacks memory while another one evicts looks again afterwards") {
    World world{{}, evicting};
    world.fill("a");
    world.fill("kept", {}, 24_MiB);
    Turnstile hooked;
    const Hook hook = world.saver->before_pause([&](PauseEvent&) { hooked.pass(); });
    Doing first{[&] { (void)world.saver->arena("x").allocate(6_MiB); }}; // pauses "a" for both
    hooked.await();
    Turnstile refused;
    refused.open();
    world.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::create) refused.pass();
    });
    Doing second{[&] { (void)world.saver->arena("y").allocate(6_MiB); }};
    refused.await();
    world.driver.on_call({});
    hooked.open();
    first.join();
    second.join();
    CHECK(world.evictions() == 1);
}

TEST_CASE("evictions: only the device that lacks memory is relieved") {
    const Checked near{HostDriver{all}};
    const Checked far{HostDriver{all, {.device = 1}}};
    MemorySaver saver{near.driver, {.evict_for_allocations = true}};
    const ArenaOptions evictable{.evictable = true};
    (void)saver.arena("near", HostBackup{.threads = 1}, near.driver, evictable).allocate(each);
    (void)saver.arena("far", HostBackup{.threads = 1}, far.driver, evictable).allocate(each);
    (void)saver.arena("x", Discard{}, far.driver).allocate(30_MiB);
    CHECK(row_of(saver, "near").state == "active");
    CHECK(row_of(saver, "far").state == "paused");
}

TEST_CASE("evictions: threads that allocate, resume and use under pressure end, and no bytes are lost") {
    const Checked machine{HostDriver{64_MiB, {.poison = true, .late = true}}};
    // Each thread takes at most 8 MiB at a time beside its tag, so that there is always room for all of them.
    constexpr std::size_t threads = 3;
    MemorySaver one{machine.driver, evicting};
    const auto name = [](std::size_t i) { return "tag " + std::to_string(i); };
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 2 * threads; ++i) {
        const ArenaOptions evictable{.evictable = true};
        blocks.push_back(one.arena(name(i), HostBackup{.threads = 1}, evictable).allocate(8_MiB));
        write_pattern(machine.driver, blocks.back(), 8_MiB, i + 1);
    }
    std::atomic<int> wrong{0};
    Threads running{threads, [&](std::size_t t) {
                        for (std::size_t round = 0; round < 20; ++round) {
                            const std::size_t i = (t + round) % (2 * threads);
                            const Arena own = one.arena("own " + std::to_string(t));
                            void* const block = own.allocate(8_MiB);
                            {
                                const Use use = one.use(name(i));
                                wrong += has_pattern(machine.driver, blocks[i], 8_MiB, i + 1) ? 0 : 1;
                            }
                            own.deallocate(block, already_idle);
                        }
                    }};
    running.join();
    CHECK(wrong.load() == 0);
    CHECK(one.usage().residency().evictions != 0);
}

TEST_CASE("evictions: a victim whose backup finds no room is passed by, and others make room") {
    using Saver = MemorySaver<FaultyDriver<HostDriver>>;
    const std::vector<std::function<void(Saver&)>> calls = {
        [](Saver& saver) { const Use use = saver.use("in", {.room_within = std::chrono::seconds{5}}); },
        [](Saver& saver) { (void)saver.arena("new").allocate(16_MiB); },
        [](Saver& saver) { CHECK(saver.reclaim(16_MiB).bytes() >= 16_MiB); },
    };
    for (const auto& call : calls) {
        for (const bool on_peer : {true, false}) { // its backup is on a full device, or there is no more host memory
            const HostDriver peer{8_MiB, {.device = 1}};
            const FaultyDriver driver{HostDriver{64_MiB}};
            Saver saver{driver, evicting};
            (void)saver.arena("in", Discard{}).allocate(16_MiB);
            (void)saver.pause("in");
            (void)saver.arena("a", on_peer ? AnyPolicy{PeerBackup{peer}} : AnyPolicy{HostBackup{}}).allocate(24_MiB);
            (void)saver.arena("b", Discard{}).allocate(32_MiB);
            for (const char* const tag : {"a", "b"}) const Use use = saver.use(tag);
            if (!on_peer) {
                driver.fail(
                    {.call = Call::map_host, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
            }
            CHECK_NOTHROW(call(saver));
            CHECK(saver.arena("a").usage().state == "active");
            CHECK(saver.arena("b").usage().state == "paused");
        }
    }
    const FaultyDriver driver{HostDriver{64_MiB}}; // if there is no other, what the backup lacks is said
    Saver saver{driver, evicting};
    (void)saver.arena("in", Discard{}).allocate(16_MiB);
    (void)saver.pause("in");
    (void)saver.arena("a", HostBackup{}).allocate(56_MiB);
    { const Use use = saver.use("a"); }
    driver.fail({.call = Call::map_host, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
    CHECK_THROWS_AS((void)saver.use("in"), OutOfHostMemory);
    CHECK_THROWS_AS((void)saver.reclaim(16_MiB), OutOfHostMemory);
    CHECK(saver.arena("a").usage().state == "active");
}

TEST_CASE("evictions: after a victim without host memory a use does not wait for the device, and its memory is found") {
    CHECK(within_seconds(30, [] {
        const FaultyDriver driver{HostDriver{64_MiB}};
        MemorySaver saver{driver, {.evict_for_allocations = true}};
        (void)saver.arena("in", Discard{}).allocate(16_MiB);
        (void)saver.pause("in");
        void* const block = saver.arena("a", HostBackup{}).allocate(24_MiB);
        (void)saver.arena("b", Discard{}).allocate(32_MiB);
        for (const char* const tag : {"a", "b"}) const Use use = saver.use(tag);
        driver.fail({.call = Call::map_host, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
        {
            const HeldStream held{driver};
            (void)saver.use("in", {.room_within = 1s});
        }
        saver.deallocate(block, already_idle);
        (void)saver.pause("b");
        return saver.use("in") && saver.arena("new").allocate(40_MiB) != nullptr;
    }));
}
} // namespace saver_evictions_test
