// Pages that go from member to member without the driver: which, and as what.
#include "memsaver/share/share.hpp"
#include "share/share_support.hpp"
#include "support/machines.hpp"

namespace share_handover_test {
using namespace test;
using namespace process_test;
using namespace share_support;

/// Counts how pages come and go.
struct Watched final : DeviceAround {
    using DeviceAround::DeviceAround;
    Status around(CallRecord& made, detail::FunctionRef<Status()> forward) noexcept override {
        const Status status = forward();
        if (status.ok() && made.call == Call::create_shared) ++created;
        if (status.ok() && made.call == Call::import_pages) ++imported;
        if (status.ok() && made.call == Call::reserve) ++reserved;
        return status;
    }

    std::atomic<int> created{0};
    std::atomic<int> imported{0};
    std::atomic<int> reserved{0};
};

/// A member with a saver that lends.
struct Party {
    Party(const Place& place, const char* name, bool trusted = true, std::chrono::milliseconds linger = {})
        : device{std::make_shared<Watched>(place.device())},
          share{AnyDriver{device},
                {.name = name, .trusted = trusted, .linger = linger, .answer_within = 1s, .folder = place.folder}},
          saver{share.driver()}, lending{share.lend(saver)} {}

    void* bare(const char* tag, std::size_t bytes) {
        return saver.arena(tag, Discard{}, ArenaOptions{.evictable = true}).allocate(bytes);
    }

    std::shared_ptr<Watched> device;
    Share share;
    MemorySaver<> saver;
    Lending lending;
};

std::size_t held_by_all(const Share& share) {
    std::size_t bytes = 0;
    for (const ShareMember& each : share.members()) bytes += each.held_bytes;
    return bytes;
}

void go(const Place& place) { std::ofstream{place.folder + "/go"} << '!'; }
void wait_for_go(const Place& place) {
    while (!std::filesystem::exists(place.folder + "/go")) (void)::usleep(500);
}

constexpr std::size_t big = 40 * page; // two do not fit

TEST_CASE("share hand-over: pages go to and fro without being released, those of strangers cleared") {
    for (const bool trusted : {true, false}) {
        const Place place;
        {
            Party a{place, "a"};
            Party b{place, "b", trusted};
            auto* const in_a = static_cast<unsigned char*>(a.bare("weights", big));
            std::memset(in_a, 7, big);
            auto* const in_b = static_cast<unsigned char*>(b.bare("weights", big));
            CHECK(b.device->created == 0);
            CHECK(b.device->imported == 1);
            CHECK(all_are(in_b, trusted ? 7 : 0, big));
            const int reserved = a.device->reserved + b.device->reserved;
            for (int round = 0; round < 4; ++round) { // pages that came from elsewhere are passed on too
                std::memset(in_b, 8, big);
                a.saver.resume("weights");
                CHECK(all_are(in_a, trusted ? 8 : 0, big));
                b.saver.resume("weights");
            }
            CHECK(a.device->reserved + b.device->reserved == reserved); // cleared where they are
            CHECK(a.device->created == 1);
            CHECK(b.device->created == 0);
            CHECK(b.device->imported == 5);
            CHECK(soon([&] { return held_by_all(a.share) == big; }));
            CHECK(free_bytes(place) == 24 * page);
        }
        CHECK(free_bytes(place) == 64 * page);
    }
}

TEST_CASE("share hand-over: pages that linger, and those that were passed and are not used yet, are free memory") {
    const Place place;
    Party a{place, "a", true, 1h};
    Party b{place, "b"};
    const auto free = [](const Party& party) {
        DeviceMemory memory;
        REQUIRE(party.share.driver().memory(memory).ok());
        return memory.free_bytes;
    };
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
    CHECK(b.device->imported == 1);

    b.saver.drop("weights");
    (void)a.bare("more", 50 * page);
    a.saver.pause();
    REQUIRE(b.share.driver().ask_for_room(50 * page, 0).ok()); // passed, and waits there
    CHECK(free(b) == 54 * page);
    b.saver.set_margin(4 * page);
    (void)b.bare("weights", 50 * page);
    CHECK(b.device->imported == 2);
    CHECK(free(b) == 4 * page);
}

TEST_CASE_FIXTURE(OnPlace, "share hand-over: pages do not linger with a leader that is stopped") {
    Child leader{[&] {
        const Share mine = place.join({.name = "leader"});
        stay();
    }};
    REQUIRE(leader.next() == 'r');
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

TEST_CASE_FIXTURE(OnPlace, "share hand-over: published pages are passed to nobody") {
    Party a{place, "a"};
    Party b{place, "b"};
    void* const block = a.bare("weights", big);
    (void)a.share.publish("model", a.saver, "weights", {.names = {{"w", block, big}}});
    CHECK_THROWS_AS((void)b.bare("other", big), OutOfMemory); // the publication keeps them
    a.share.withdraw("model");
    (void)b.bare("other", big);
    CHECK(b.device->imported == 0);
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
        try {
            (void)saver.pause("weights");
        } catch (const DriverError&) { // it was not unmapped, and is as before
        }
        driver.on_call({});
        driver.heal();
        (void)saver.resume("weights");
        std::this_thread::sleep_for(10ms);
        CHECK(all_are(block, 1, 40 * page));
        CHECK(driver.inner().violations().empty());
    }
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
                say(room && mine.device->imported == 0 ? 'y' : 'n');
                if (!takes) std::this_thread::sleep_for(300ms);
            }
            wait_to_be_killed();
        };
    };
    SUBCASE("leader") {
        Child leader{poor(false)};
        REQUIRE(leader.next() == 'r');
        Party a{place, "a"};
        Party b{place, "b"};
        (void)a.bare("weights", big);
        REQUIRE(b.share.members().size() == 3);
        go(place);
        REQUIRE(leader.next() == 'y');
        (void)b.share.driver().ask_for_room(big, 0); // may fail: this device's free memory is not known without any
        CHECK(soon([&] { return free_bytes(place) == 64 * page; }));
        CHECK(soon([&] { return b.share.driver().ask_for_room(big, 0).ok(); }));
        leader.kill_now();
    }
    SUBCASE("taker") {
        Party a{place, "a"};
        Child taker{poor(true)};
        REQUIRE(taker.next() == 'r');
        (void)a.bare("weights", big);
        go(place);
        CHECK(taker.next() == 'y');
        CHECK(soon([&] { return held_by_all(a.share) == 0; }));
        taker.kill_now();
    }
    CHECK(soon([&] { return free_bytes(place) == 64 * page; }));
}
} // namespace share_handover_test
