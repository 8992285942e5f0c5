// OutOfMemory is thrown only if live memory is in the way: before that, freed blocks of any tag, unused pages and
// memory freed by the program's callback are used, and the device is waited for once if they need it.
#include "support/each_of.hpp"

namespace saver_room_test {
using namespace test;

constexpr std::size_t all = 64_MiB;
constexpr std::size_t most = 40_MiB; // more than half, so that two do not fit

/// A resume holds freed memory of its tag while it runs: other allocations wait until it ends, in every way.
TEST_CASE("room: freed memory that another thread's operation holds while it runs is waited for") {
    const std::string wants = each_of<std::string>(
        {"another tag", "the same tag", "a resume", "a workspace", "plain memory", "beside an arrival"});
    const FaultyDriver driver{HostDriver{all}};
    MemorySaver saver{driver};
    const std::size_t capacity = wants == "the same tag" ? 50_MiB : 0;
    const Arena arena = saver.arena("away", HostBackup{}, ArenaOptions{.capacity = capacity});
    const Buffer<char> kept{arena, 1_MiB};
    const Buffer<char> paused{saver.arena("paused"), 20_MiB};
    (void)saver.pause();
    { const Buffer<char> freed{arena, most}; }
    const HeldLane lane{driver, Direction::in};
    Doing resuming{[&] {
        if (wants != "beside an arrival") return (void)saver.resume("away");
        saver.resume_async("away").wait();
    }};
    while (driver.calls(Call::copy_to_device) == 0) std::this_thread::yield(); // it has its pages, and waits for bytes
    Doing ending{[&] {
        std::this_thread::sleep_for(50ms);
        lane.let_go();
    }};
    if (wants == "another tag" || wants == "beside an arrival") CHECK_NOTHROW((void)saver.arena("b").allocate(most));
    if (wants == "the same tag") CHECK_NOTHROW((void)arena.allocate(most + 2_MiB));
    if (wants == "a resume") CHECK_NOTHROW((void)saver.resume("paused", {.room_within = {}}));
    if (wants == "plain memory") CHECK_NOTHROW((void)saver.outside().allocate(most));
    if (wants == "a workspace") {
        WorkspacePool pool{saver.arena("w"), {.cap = most}};
        CHECK_NOTHROW((void)pool.get("w", most));
    }
    ending.join();
    resuming.join();
}

/// The call waits for nothing of the program's any more.
TEST_CASE("room: a tag's memory is waited for while a call of another thread has only its own work left") {
    const Folder folder;
    const std::string file = (folder.path / "bytes").string();
    std::ofstream{file} << std::string(1000, 'x');
    const auto wait = [](Call stuck_in, const AnyPolicy& policy, auto act) {
        CAPTURE(stuck_in);
        const FaultyDriver driver{HostDriver{all}};
        MemorySaver saver{driver};
        const Arena arena = saver.arena("held", policy);
        Elastic range = arena.elastic(2_MiB, {.granularity = 2_MiB});
        range.resize(2_MiB);
        const Buffer<char> kept{arena, 1_MiB};
        arena.deallocate(arena.allocate(most), already_idle);
        Stuck stuck{driver, stuck_in, [&] { act(saver, range, kept.data()); }, Whose::anybodys};
        Doing ending{[&] {
            std::this_thread::sleep_for(50ms);
            stuck.go_on();
        }};
        CHECK_NOTHROW((void)saver.arena("b").allocate(most));
        ending.join();
    };
    wait(Call::copy_to_device, FileSource{}, [&](auto& saver, auto&, void* at) { saver.load(at, 1000, file); });
    wait(Call::pin_host, HostBackup{}, [](auto& saver, auto&, void*) { saver.prepare("held"); });
    wait(Call::unmap, Discard{}, [](auto& saver, auto&, void*) { saver.drop("held"); });
    wait(Call::unmap, Discard{}, [](auto&, Elastic& range, void*) { range.resize(0, already_idle); });
}

TEST_CASE("room: a hopeless request does not wait for a device that would free nothing") {
    const HostDriver driver{all};
    const HeldStream stream{driver};
    MemorySaver saver{driver};
    const Buffer<char> lives{saver.arena("a"), most};
    Buffer<char> used{saver.arena("a"), 1_MiB};
    REQUIRE(driver.fill(address_of(used.data()), 1, 1_MiB, stream.get()).ok());
    CHECK_THROWS_AS((void)saver.arena("b").allocate(most), OutOfMemory);
    used.reset(stream.get());
    const Buffer<char> again{saver.arena("a"), 1_MiB, stream.get()}; // the same block: nothing waits any more
    CHECK_THROWS_AS((void)saver.arena("b").allocate(most), OutOfMemory);
    stream.let_go();
}

static_assert(!std::is_copy_constructible_v<MemorySaver<HostDriver>>, "two would close one another");

TEST_CASE("room: the program is asked, without a lock, for as long as it says yes") {
    std::vector<NoRoom> asked;
    std::vector<Buffer<char>> cache;
    std::optional<MemorySaver<>> saver;
    const auto make_room = [&](const NoRoom& need) {
        asked.push_back(need);
        CHECK_THROWS_AS((void)saver->arena("meanwhile").allocate(2 * all), OutOfMemory); // not called recursively
        if (cache.empty()) return false;
        cache.pop_back();
        (void)saver->pause("idle"); // may pause
        return true;
    };
    saver = MemorySaver{HostDriver{all}, {.on_no_room = make_room}};
    const Arena arena = saver->arena("cache");
    for (int i = 0; i < 2; ++i) cache.emplace_back(arena, 16_MiB);
    const Buffer<char> idle{saver->arena("idle"), 1_MiB};
    void* const block = saver->arena("wanted").allocate(56_MiB);
    CHECK(saver->owns(block));
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].bytes == 56_MiB);
    CHECK(asked[0].tag == "wanted");
    CHECK(asked[0].free_bytes < 56_MiB);
    CHECK(asked[0].missing_bytes == 56_MiB - asked[0].free_bytes);
    CHECK(cache.empty());
    CHECK_THROWS_AS((void)saver->arena("wanted").allocate(all), OutOfMemory); // finally returns false
    CHECK(asked.size() == 3);
}

TEST_CASE("room: when several tags are resumed, NoRoom names none, and the owners of none of them are asked") {
    std::vector<std::string> named;
    const auto on_no_room = [&](const NoRoom& need) { return named.push_back(need.tag), false; };
    MemorySaver saver{HostDriver{all}, {.on_no_room = on_no_room}};
    int asked = 0;
    const auto refuse = [&](std::size_t) { return asked += 1, std::size_t{0}; };
    Elastic kv = saver.arena("kv").elastic(1_GiB, {.granularity = 2_MiB, .on_reclaim = refuse});
    kv.commit(0, 20_MiB);
    const Buffer<char> weights{saver.arena("weights", HostBackup{}), 20_MiB};
    const Buffer<char> here{saver.arena("here"), 2_MiB};
    saver.pause({"kv", "weights"});
    const Buffer<char> other{saver.arena("other"), all - 34_MiB};
    CHECK_THROWS_AS(saver.resume({"kv", "weights"}), OutOfMemory);
    CHECK_THROWS_AS((void)saver.resume_async({"kv", "weights"}), OutOfMemory);
    CHECK_THROWS_AS((void)saver.use({"kv", "weights"}), OutOfMemory);
    CHECK(named == std::vector<std::string>{"", "", ""});
    CHECK(asked == 0);
    saver.set_margin(20_MiB);
    named.clear();
    CHECK_THROWS_AS(saver.resume({"here", "kv"}), OutOfMemory); // names the one being resumed
    CHECK_THROWS_AS((void)saver.use({"here", "kv"}), OutOfMemory);
    CHECK(named == std::vector<std::string>{"kv", "kv"});
    CHECK(asked == 0);
    CHECK_THROWS_AS(saver.resume("weights"), OutOfMemory);
    CHECK(asked == 1);
}

TEST_CASE("room: a margin that is set while a tag is being made is that tag's") {
    MemorySaver<>* known = nullptr;
    unsigned asked = 0;
    const auto on_no_room = [&](const NoRoom&) { return known->set_margin(0), asked++ == 0; };
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}, {.margin = 32_MiB, .on_no_room = on_no_room}};
    known = &saver;
    CHECK(saver.arena("a", Discard{}, {.reserve = 48_MiB}).usage().mapped_bytes == 48_MiB);
    CHECK(asked == 1);
    saver.set_margin(60_MiB);
    CHECK_THROWS_AS((void)saver.arena("a").allocate(60_MiB), OutOfMemory);
}

TEST_CASE("room: what an earlier try resumed is in the report of a resume, or of its exception") {
    const bool once = either("fails once", "fails onwards");
    for (const std::uint64_t nth : {1U, 2U}) { // the copies of one tag, after those of the other
        CAPTURE(nth);
        const MachineDriver driver{HostDriver{all}};
        int asked = 0;
        MemorySaver saver{driver, {.on_no_room = [&](const NoRoom&) { return ++asked == 1; }}};
        for (const char* tag : {"a", "b"}) (void)saver.arena(tag, HostBackup{.threads = 1}).allocate(1_KiB);
        const std::size_t bytes = saver.pause().released_bytes;
        const Lasting lasting = once ? Lasting::once : Lasting::onwards;
        driver.fail({.call = Call::wait, .nth = nth, .lasting = lasting, .kind = StatusKind::out_of_memory});
        const Report report = once ? saver.resume() : thrown<OutOfMemory>([&] { (void)saver.resume(); }).report();
        driver.heal();
        CHECK(asked == (once ? 1 : 2));
        const Report rest = saver.resume();
        CHECK(rest.tags.empty() == once);
        CHECK(report.tags.size() + rest.tags.size() == 2);
        CHECK(report.mapped_bytes + rest.mapped_bytes == bytes);
    }
}

TEST_CASE("room: on_no_room that has nothing yet is called as long as the call waits") {
    int asked = 0;
    MemorySaver<>* self = nullptr;
    const auto on_no_room = [&](const NoRoom&) { return ++asked > 150 && self->pause("b").released_bytes != 0; };
    MemorySaver<> saver{HostDriver{64_MiB}, {.default_policy = HostBackup{.threads = 1}, .on_no_room = on_no_room}};
    self = &saver;
    const Buffer<char> a{saver.arena("a"), 40_MiB};
    saver.pause("a");
    const Buffer<char> b{saver.arena("b"), 40_MiB};
    CHECK_NOTHROW(saver.resume("a", {.room_within = std::chrono::minutes{5}}));
    CHECK(asked == 151);
}

TEST_CASE("room: memory that an owner of elastic memory frees elsewhere counts") {
    const HostDriver driver{96_MiB};
    MemorySaver saver{driver, {.default_policy = HostBackup{.threads = 1}}};
    const Buffer<char> other{saver.arena("other"), 32_MiB};
    const Buffer<char> idle{saver.arena("idle", ArenaOptions{.evictable = true}), 32_MiB};
    const auto pauses = [&](std::size_t) -> std::size_t { return saver.pause("other").released_bytes; };
    const Elastic kv = saver.arena("kv").elastic(32_MiB, {.granularity = 2_MiB, .on_reclaim = pauses});
    const Reclaimed got = saver.reclaim(20_MiB);
    CHECK(got.elastic_bytes == 32_MiB);
    CHECK(got.evicted_bytes == 0);
    CHECK(saver.arena("idle").usage().state == "active");

    saver.resume("other");
    const auto boasts = [](std::size_t wanted) { return wanted; };
    const Elastic liar = saver.arena("liar").elastic(32_MiB, {.granularity = 2_MiB, .on_reclaim = boasts});
    saver.pause("other");
    const Reclaimed none = saver.reclaim(20_MiB);
    CHECK(none.elastic_bytes == 0); // what it says it released does not count alone
    CHECK(none.evicted_bytes == 32_MiB);
}

TEST_CASE("room: a resume asks the program with no turn held, and waits for others") {
    std::optional<MemorySaver<>> saver;
    bool ask = true;
    saver = MemorySaver{HostDriver{all}, {.on_no_room = [&](const NoRoom& need) {
                            CHECK(need.bytes == most);
                            if (!std::exchange(ask, false)) return false;
                            (void)saver->pause({"a", "b"}); // b is being resumed
                            return true;
                        }}};
    const Buffer<char> b{saver->arena("b"), most};
    (void)saver->pause("b");
    std::optional<Buffer<char>> a{std::in_place, saver->arena("a"), most};
    CHECK(saver->resume("b").mapped_bytes == most);
    CHECK(!ask);

    (void)saver->pause("b");
    (void)saver->resume("a");
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(saver->resume("b", {.room_within = 20ms}), OutOfMemory);
    CHECK(std::chrono::steady_clock::now() - start >= 20ms);
    std::thread other{[&] {
        std::this_thread::sleep_for(20ms);
        a.reset();
    }};
    CHECK(saver->resume("b", {.room_within = 60s}).mapped_bytes == most);
    other.join();
}
} // namespace saver_room_test
