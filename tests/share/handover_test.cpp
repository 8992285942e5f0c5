// Pages that go from member to member without the driver: which, as what, and when one of them is killed on the way.
#include "memsaver/share/share.hpp"
#include "share/share_support.hpp"
#include "support/each_of.hpp"

#include <ctime>

namespace share_handover_test {
using namespace test;
using namespace process_test;
using namespace share_support;

/// A member with a saver that lends.
struct Party {
    Party(const Place& place, const char* name, bool trusted = true, std::chrono::milliseconds linger = {})
        : device{place.device()}, share{place.join(
                                      {.name = name, .trusted = trusted, .linger = linger, .answer_within = 1s},
                                      device)} {}
    /// A block in a tag that keeps nothing.
    void* bare(const char* tag, std::size_t bytes) {
        return saver.arena(tag, Discard{}, ArenaOptions{.evictable = true}).allocate(bytes);
    }

    [[nodiscard]] std::uint64_t created() const { return device.calls(Call::create_shared); }
    [[nodiscard]] std::uint64_t imported() const { return device.calls(Call::import_pages); }
    [[nodiscard]] std::uint64_t reserved() const { return device.calls(Call::reserve); }
    /// Kills this process before the call of a number.
    void die_at(int number) const {
        device.on_call([left = std::make_shared<std::atomic<int>>(number)](const CallRecord&) {
            if (--*left == 0) (void)::kill(::getpid(), SIGKILL);
        });
    }

    FaultyDriver<HostDriver> device;
    Share share;
    MemorySaver<> saver{share.driver()};
    Lending lending{share.lend(saver)};
};

void go(const Place& place) { std::ofstream{place.folder + "/go"} << '!'; }
void wait_for_go(const Place& place) {
    while (!std::filesystem::exists(place.folder + "/go")) (void)::usleep(500);
}

constexpr std::size_t big = 40 * page; // two do not fit

TEST_CASE_FIXTURE(OnPlace, "share hand-over: pages go to and fro without being released, those of strangers cleared") {
    const bool trusted = either("trusted", "strangers");
    {
        Party a{place, "a"};
        Party b{place, "b", trusted};
        auto* const in_a = static_cast<unsigned char*>(a.bare("weights", big));
        std::memset(in_a, 7, big);
        auto* const in_b = static_cast<unsigned char*>(b.bare("weights", big));
        CHECK(b.created() == 0);
        CHECK(b.imported() == 1);
        CHECK(all_are(in_b, trusted ? 7 : 0, big));
        const std::uint64_t reserved = a.reserved() + b.reserved();
        for (int round = 0; round < 4; ++round) { // pages that came from elsewhere are passed on too
            std::memset(in_b, 8, big);
            a.saver.resume("weights");
            CHECK(all_are(in_a, trusted ? 8 : 0, big));
            b.saver.resume("weights");
        }
        CHECK(a.reserved() + b.reserved() == reserved); // cleared where they are
        CHECK(a.created() == 1);
        CHECK(b.created() == 0);
        CHECK(b.imported() == 5);
        CHECK(soon([&] { return held_by_all(a.share) == big; }));
        CHECK(free_bytes(place) == 24 * page);
    }
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: what its owner pauses goes to who waits for it") {
    Party a{place, "a"};
    Party b{place, "b"};
    if (either("lends nothing", "lends")) a.lending = {};
    auto* const in_b = static_cast<unsigned char*>(b.bare("weights", big));
    b.saver.pause();
    auto* const in_a = static_cast<unsigned char*>(a.saver.arena("own").allocate(big)); // not evictable
    std::memset(in_a, 7, big);
    std::thread waiting{[&] { b.saver.resume("weights", {.room_within = 30s}); }};
    std::this_thread::sleep_for(50ms); // asked for its pages, and asked again
    a.saver.pause("own");
    waiting.join();
    CHECK(b.imported() == 1);
    CHECK(all_are(in_b, 7, big));
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: two that take turns pass pages that linger") {
    const bool trusted = either("trusted", "strangers");
    Party a{place, "a", true, 1h};
    Party b{place, "b", trusted, 1h};
    auto* const in_a = static_cast<unsigned char*>(a.bare("weights", big));
    a.saver.pause();
    auto* const in_b = static_cast<unsigned char*>(b.bare("weights", big));
    CHECK(b.created() == (trusted ? 0 : 1)); // as they were left: not for a stranger
    for (int round = 0; round < 3; ++round) {
        std::memset(in_b, 8, big);
        b.saver.pause();
        CHECK(free_bytes(place) == 64 * page - big);
        a.saver.resume();
        CHECK(all_are(in_a, trusted ? 8 : 0, big));
        std::memset(in_a, 9, big);
        a.saver.pause();
        b.saver.resume();
        if (trusted) CHECK(all_are(in_b, 9, big));
    }
    CHECK(a.created() == 1);
    CHECK(a.imported() == 3);
    CHECK(b.created() == (trusted ? 0 : 4));
    b.saver.pause();
    (void)a.bare("of another size", 64 * page - big / 2); // they are not in the way
    CHECK(free_bytes(place) == big / 2);
    a.saver.drop("of another size");
    CHECK(free_bytes(place) == big / 2); // lingers
    Address plain = 0;
    CHECK(a.share.driver().allocate_plain(64 * page - big / 2, plain).ok());
    CHECK(free_bytes(place) == big / 2);
    CHECK(a.share.driver().free_plain(plain).ok());
}

TEST_CASE("share hand-over: pages that linger, and those that were passed and are not used yet, are free memory") {
    const Place place;
    Party a{place, "a", true, 1h};
    Party b{place, "b"};
    const auto free = [](const Party& party) { return memory_of(party.share.driver()).free_bytes; };
    (void)b.bare("weights", big);
    (void)b.saver.pause();
    (void)b.bare("idle", 10 * page);
    (void)a.bare("weights", big);
    (void)a.saver.pause();
    CHECK(free_bytes(place) == 14 * page);
    CHECK(free(a) == 54 * page);
    CHECK(free(b) == 54 * page);
    b.saver.set_margin(10 * page);
    { const Use use = b.saver.use("weights"); } // what is idle need not go
    CHECK(b.saver.bytes_to_resume("idle") == 0);
    CHECK(b.imported() == 1);

    b.saver.drop("weights");
    (void)a.bare("more", 50 * page);
    a.saver.pause();
    REQUIRE(b.share.driver().ask_for_room(50 * page, 0).ok()); // passed, and waits there
    CHECK(free(b) == 54 * page);
    b.saver.set_margin(4 * page);
    (void)b.bare("weights", 50 * page);
    CHECK(b.imported() == 2);
    CHECK(free(b) == 4 * page);
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: pages do not linger with a leader that is stopped") {
    Ready leader{[&] {
        const Share mine = place.join({.name = "leader"});
        stay();
    }};
    Party a{place, "a", true, 1h};
    (void)a.bare("weights", big);
    a.saver.pause();
    CHECK(free_bytes(place) == 64 * page - big);
    a.saver.resume();
    share_support::stop(place, leader);
    std::this_thread::sleep_for(2 * detail::ShareMemberCore::answers_for);
    a.saver.pause();
    CHECK(free_bytes(place) == 64 * page);
    a.saver.resume();
    leader.kill(SIGKILL);
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: pages of another size become free, and are created anew") {
    Party a{place, "a"};
    Party b{place, "b"};
    (void)a.bare("first", 20 * page);
    (void)a.bare("second", 30 * page);
    const std::uint64_t before = b.created();
    (void)b.bare("weights", 60 * page);
    CHECK(b.created() == before + 1);
    CHECK(b.imported() == 0);
    CHECK(soon([&] { return held_by_all(a.share) == 60 * page; }));
    CHECK(free_bytes(place) == 4 * page);
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: passed pages of another size make room together with what is free") {
    Party a{place, "a"};
    Party b{place, "b"};
    (void)a.bare("weights", 50 * page);
    REQUIRE(b.share.driver().ask_for_room(50 * page, 0).ok());
    CHECK(free_bytes(place) == 14 * page); // the rest was passed, and is not used
    (void)b.bare("weights", 60 * page);
    CHECK(b.imported() == 0);
    CHECK(free_bytes(place) == 4 * page);
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: published pages are passed to nobody") {
    Party a{place, "a"};
    Party b{place, "b"};
    void* const block = a.bare("weights", big);
    (void)a.share.publish("model", a.saver, "weights", {.names = {{"w", block, big}}});
    CHECK_THROWS_AS((void)b.bare("other", big), OutOfMemory); // the publication keeps them
    a.share.withdraw("model");
    (void)b.bare("other", big);
    CHECK(b.imported() == 0);
}

TEST_CASE("share hand-over: pages whose clearing could not be waited for are not given away, and not cleared later") {
    { // of pages that are not mapped
        const Place place;
        const FaultyDriver<HostDriver> driver{place.device()};
        const Share share{driver, {.name = "a", .linger = 5s, .folder = place.folder}};
        PageHandle pages;
        REQUIRE(share.driver().create(40 * page, pages).ok());
        const std::size_t mapped = driver.inner().counts().mappings;
        driver.fail({.call = Call::record, .lasting = Lasting::onwards});
        driver.fail({.call = Call::drain, .lasting = Lasting::onwards});
        CHECK_FALSE(share.driver().release(pages).ok());
        driver.heal();
        CHECK(share.driver().release(pages).ok());
        CHECK(driver.inner().counts().mappings == mapped);
        CHECK(driver.inner().violations().empty());
    }
    for (const bool unmap_fails : {false, true}) {
        CAPTURE(unmap_fails);
        const Place place;
        const FaultyDriver<HostDriver> driver{place.device()};
        const Share share{driver, {.name = "a", .linger = 5s, .folder = place.folder}};
        MemorySaver<> saver{share.driver()};
        const Arena arena = saver.arena("weights", HostBackup{.threads = 1});
        void* const block = arena.allocate(40 * page);
        std::memset(block, 1, 40 * page);
        driver.on_call([&](const CallRecord& made) {
            if (made.call != Call::fill) return;
            driver.fail({.call = Call::record});
            driver.fail({.call = Call::drain});
            if (unmap_fails) driver.fail({.call = Call::unmap});
        });
        (void)succeeds<DriverError>([&] { saver.pause("weights"); }); // or was not unmapped, and is as before
        driver.on_call({});
        driver.heal();
        (void)saver.resume("weights");
        std::this_thread::sleep_for(10ms);
        CHECK(all_are(block, 1, 40 * page));
        CHECK(driver.inner().violations().empty());
    }
}

TEST_CASE_FIXTURE(OnPlace,
                  "share hand-over: pages from elsewhere can be published after a release of them has failed") {
    Party a{place, "a"};
    const FaultyDriver<HostDriver> driver{place.device()};
    const Share share{driver, {.name = "b", .linger = 5s, .folder = place.folder}};
    (void)a.bare("weights", big);
    REQUIRE(share.driver().ask_for_room(big, 0).ok());
    PageHandle pages;
    REQUIRE(share.driver().create(big, pages).ok());
    driver.fail({.call = Call::record}); // what clears them
    driver.fail({.call = Call::release});
    CHECK_FALSE(share.driver().release(pages).ok());
    int descriptor = -1;
    CHECK(share.driver().export_pages(pages, descriptor).ok());
    (void)::close(descriptor);
    CHECK(share.driver().release(pages).ok());
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: what nobody uses goes back to the driver") {
    Party a{place, "a"};
    Party b{place, "b"};
    (void)a.bare("weights", big);
    REQUIRE(b.share.driver().ask_for_room(big, 0).ok());
    CHECK(soon([&] { return held_by_all(a.share) == 0; }));
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE("share hand-over: without descriptors pages are left to the driver" * doctest::skip(test::sanitized)) {
    const Place place;
    const auto poor = [&](bool takes) {
        return [&place, takes] {
            Party mine{place, "poor"};
            say('r');
            wait_for_go(place);
            {
                const Limit none{RLIMIT_NOFILE, 0};
                const bool room = !takes || mine.share.driver().ask_for_room(big, 0).ok();
                say(room && mine.imported() == 0 ? 'y' : 'n');
                const std::clock_t before = std::clock();
                if (!takes) std::this_thread::sleep_for(300ms);
                if (!takes) say(std::clock() - before < CLOCKS_PER_SEC / 20 ? 'y' : 'n'); // does not poll in vain
            }
            wait_to_be_killed();
        };
    };
    SUBCASE("leader") {
        Ready leader{poor(false)};
        Party a{place, "a"};
        Party b{place, "b"};
        (void)a.bare("weights", big);
        REQUIRE(b.share.members().size() == 3);
        go(place);
        REQUIRE(leader.next() == 'y');
        (void)b.share.driver().ask_for_room(big, 0); // may fail: this device's free memory is not known without any
        CHECK(soon([&] { return free_bytes(place) == 64 * page; }));
        CHECK(soon([&] { return b.share.driver().ask_for_room(big, 0).ok(); }));
        CHECK(leader.next() == 'y');
        leader.kill_now();
    }
    SUBCASE("taker") {
        Party a{place, "a"};
        Ready taker{poor(true)};
        (void)a.bare("weights", big);
        go(place);
        CHECK(taker.next() == 'y');
        CHECK(soon([&] { return held_by_all(a.share) == 0; }));
        taker.kill_now();
    }
    CHECK(soon([&] { return free_bytes(place) == 64 * page; }));
}

/// One member of two is a child that is killed before its first, second, ... driver call, until it makes no more;
/// either leads. `inside(mine, at)` runs in the child, `outside(other, child, place)` here: it returns whether the
/// child was killed.
template <class Inside, class Outside>
void killed_at_each_call(const char* name, const char* others, const Inside& inside, const Outside& outside) {
    for (const bool leads : {false, true}) {
        bool killed = true;
        for (int at = 1; killed; ++at) {
            CAPTURE(at);
            REQUIRE(at < 100);
            const Place place;
            std::optional<Party> first;
            if (!leads) first.emplace(place, others, at % 2 == 0);
            Ready child{[&] {
                Party mine{place, name};
                say('r');
                wait_for_go(place);
                inside(mine, at);
                stay('h');
            }};
            if (leads) first.emplace(place, others, at % 2 == 0);
            void* const block = fill(first->saver, "weights", big, 3);
            killed = outside(*first, child, place);
            CHECK(all_are(block, 3, big));
            first.reset();
            CHECK(soon([&] { return free_bytes(place) == 64 * page; }));
        }
    }
}

TEST_CASE("share hand-over: a giver that is killed at any call takes nothing with it") {
    killed_at_each_call(
        "giver", "taker",
        [](Party& mine, int at) {
            (void)mine.bare("idle", big);
            mine.die_at(at);
        },
        [](Party& taker, Child& giver, const Place& place) {
            taker.saver.pause();
            go(place);
            REQUIRE(giver.next() == 'h');
            taker.saver.resume("weights", {.room_within = 30s});
            giver.kill(SIGUSR1); // ends it, unless it has been killed
            return giver.wait() == -SIGKILL;
        });
}

TEST_CASE("share hand-over: a taker that is killed at any call leaves the pages to others") {
    killed_at_each_call(
        "taker", "giver",
        [](Party& mine, int at) {
            mine.die_at(at);
            (void)mine.bare("weights", big);
            mine.device.on_call({});
        },
        [](Party& giver, Child& taker, const Place& place) {
            go(place);
            const bool killed = taker.next() != 'h';
            if (!killed) taker.kill(SIGKILL);
            giver.saver.resume("weights", {.room_within = 30s});
            return killed;
        });
}

TEST_CASE("share hand-over: a leader that is killed while pages pass through it keeps none") {
    for (int at = 1; at < 6; ++at) {
        CAPTURE(at);
        const Place place;
        Ready leader{[&] {
            Party mine{place, "leader"};
            say('r');
            wait_for_go(place);
            mine.die_at(at);
            stay('h');
        }};
        {
            Party a{place, "a"};
            Party b{place, "b", at % 2 == 0};
            void* const in_b = fill(b.saver, "weights", big, 2);
            void* const in_a = fill(a.saver, "weights", big, 1);
            go(place);
            REQUIRE(leader.next() == 'h');
            for (int round = 0; round < 5; ++round) {
                b.saver.resume("weights", {.room_within = 30s});
                CHECK(all_are(in_b, 2, big));
                a.saver.resume("weights", {.room_within = 30s});
                CHECK(all_are(in_a, 1, big));
            }
        }
        leader.kill(SIGKILL);
        (void)leader.wait();
        CHECK(soon([&] { return free_bytes(place) == 64 * page; }));
    }
}
} // namespace share_handover_test
