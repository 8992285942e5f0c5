// Who gets room next and who is asked for it, without sockets, threads or devices.
#include "memsaver/share/room.hpp"
#include "support/each_of.hpp"

#include <sys/eventfd.h>

namespace share_room_test {
using namespace memsaver::detail;
using namespace std::chrono_literals;
using Kind = ShareMessage::Kind;

struct Desk {
    struct Sent {
        int link;
        Kind kind;
        std::uint64_t id;
        std::uint64_t bytes;
    };
    std::uint64_t free = 0;
    std::uint64_t idle = 0;    // of the member that was asked last, as far as the leader knew
    std::int64_t as_pages = 0; // how much of what it releases it is to pass
    bool held_back = false;    // more is heard before the next look
    std::vector<Sent> sent;
    int waits = 0;           // how often somebody was told that it waits
    std::uint64_t asked = 0; // the number of the last question
    ShareRoom::Clock::time_point now{};
    ShareRoom room{[this](int link, const ShareMessage& m, int /*descriptor*/) {
                       if (m.kind == Kind::lend) asked = m.id, idle = m.facts.idle, as_pages = m.within;
                       if (m.kind == Kind::waits) ++waits;
                       if (m.kind != Kind::welcome && m.kind != Kind::waits)
                           sent.push_back({link, m.kind, m.id, m.bytes});
                       return true;
                   },
                   [this] { return free; }, 100ms, now};

    Desk& join(int link, std::uint64_t held, int priority = 0, std::uint64_t floor = 0, bool lends = true) {
        ShareFacts facts;
        facts.priority = priority;
        facts.lends = lends ? 1 : 0;
        facts.held = held;
        facts.floor = floor;
        now += ShareRoom::gathers;
        return join(link, facts);
    }
    Desk& join(int link, const ShareFacts& facts) {
        room.join(link, facts, now);
        return look();
    }
    Desk& leave(int link) {
        room.leave(link);
        return look();
    }
    Desk& say(int link, Kind kind, std::uint64_t bytes, std::uint64_t id = 0, std::int64_t within = 0,
              const ShareFacts& facts = {}) {
        ShareMessage message;
        message.kind = kind;
        message.bytes = bytes;
        message.id = (kind == Kind::gave || kind == Kind::recent) && id == 0 ? asked : id;
        message.within = within;
        message.facts = facts;
        now += 1ms;
        room.hear(link, message, now);
        return held_back ? *this : look();
    }
    /// Has released as much, which is free now.
    Desk& give(int link, std::uint64_t bytes) {
        free += bytes;
        return say(link, Kind::gave, bytes);
    }
    Desk& tell(int link, const ShareFacts& facts) { return say(link, Kind::facts, 0, 0, 0, facts); }
    /// Has used what it holds since it was asked, and so long ago.
    Desk& recent(int link, std::chrono::nanoseconds since) {
        return say(link, Kind::recent, 0, 0, 0, {.idle = static_cast<std::uint64_t>(since.count())});
    }
    Desk& look() {
        room.look(now);
        return *this;
    }
    /// As if the time had come for the next look.
    Desk& look_next() {
        REQUIRE(room.next().has_value());
        room.look(*room.next());
        return *this;
    }
    /// Passes pages.
    void pass(int link, std::uint64_t bytes, bool as_left = false, std::uint64_t kind = 0,
              std::chrono::nanoseconds lingers = {}, bool let_go = true) {
        ShareMessage message;
        message.within = lingers.count();
        message.kind = Kind::pass;
        message.bytes = bytes;
        message.as_left = as_left ? 1 : 0;
        message.facts.pages = kind;
        room.hear(link, message, now, ShareFd::opened([] { return ::eventfd(0, EFD_CLOEXEC); }));
        if (!let_go) return;
        message.kind = Kind::freed;
        room.hear(link, message, now);
    }
    Desk& want(int link, std::uint64_t bytes, std::uint64_t id, std::int64_t within = 0) {
        return say(link, Kind::want, bytes, id, within);
    }
    /// What was sent since the last time, as text: "2 lend 8".
    std::string heard() {
        std::string text;
        for (const Sent& each : sent) {
            const char* const kind = each.kind == Kind::grant  ? "grant"
                                     : each.kind == Kind::deny ? "deny"
                                     : each.kind == Kind::lend ? "lend"
                                     : each.kind == Kind::page ? "page"
                                                               : "?";
            text +=
                (text.empty() ? "" : ", ") + std::to_string(each.link) + ' ' + kind + ' ' + std::to_string(each.bytes);
        }
        sent.clear();
        return text;
    }
};

/// A desk with a member that lends nothing.
struct Taker {
    Taker() { desk.join(1, 0, 0, 0, false); }
    Desk desk{};
};

constexpr std::int64_t long_time = 1'000'000'000;

TEST_CASE_FIXTURE(Taker, "share room: asked first is the lowest priority, then who is idle, none below its floor") {
    desk.join(3, 10, 1, 8);
    desk.join(4, 10, 1);
    desk.join(5, 10, 1);
    desk.join(2, 10, 5);
    desk.join(6, 10, 0, 0, false); // does not lend
    desk.join(7, 10, 0, 10);       // has no more than its floor
    desk.join(8, 4);
    desk.say(4, Kind::took, 0); // 5 has done nothing since
    CHECK(desk.want(1, 34, 11).heard() == "8 lend 4");
    CHECK(desk.idle == 0); // the others are of a higher priority
    CHECK(desk.give(8, 4).heard() == "3 lend 2");
    CHECK(desk.idle != 0); // 4 and 5 could be idle for longer
    CHECK(desk.give(3, 2).heard() == "5 lend 10");
    CHECK(desk.give(5, 4).heard() == "4 lend 10"); // gives less than it was asked for
    CHECK(desk.give(4, 10).heard() == "2 lend 10");
    CHECK(desk.give(2, 10).heard() == "1 deny 34"); // nobody has more, and it does not wait
}

TEST_CASE_FIXTURE(Taker, "share room: a member that has used its memory is asked after those idle for longer") {
    desk.join(2, 10);
    desk.join(3, 10); // 50 ms later
    desk.now += 10ms;
    CHECK(desk.want(1, 8, 11).heard() == "2 lend 8");
    CHECK(desk.idle == std::chrono::nanoseconds{61ms}.count());
    CHECK(desk.recent(2, 5ms).heard() == "3 lend 8");
    CHECK(desk.recent(3, 24h).heard() == "3 lend 8"); // no longer than was known
    CHECK(desk.recent(3, 2ms).heard() == "2 lend 8");
    CHECK(desk.give(2, 4).heard() == "3 lend 4");
    CHECK(desk.give(3, 4).heard() == "1 grant 8");
    desk.leave(3);
    CHECK(desk.want(1, 12, 12).heard() == "2 lend 10");
    CHECK(desk.idle == 0); // there is no other one
}

TEST_CASE_FIXTURE(Taker, "share room: members that are all in use are asked in spite of it, but not again and again") {
    desk.join(2, 10);
    desk.join(3, 10);
    CHECK(desk.want(1, 8, 11, long_time).heard() == "2 lend 8");
    CHECK(desk.recent(2, 0ms).heard() == "3 lend 8");
    CHECK(desk.idle != 0);
    CHECK(desk.recent(3, 0ms).heard() == "2 lend 8");
    CHECK(desk.idle == 0); // it must answer
    CHECK(desk.say(2, Kind::gave, 0).heard() == "3 lend 8");
    CHECK(desk.idle == 0);
    desk.say(3, Kind::gave, 0);
    desk.now += ShareRoom::ask_again;
    CHECK(desk.look().heard() == "2 lend 8");
    CHECK(desk.idle != 0);
}

TEST_CASE_FIXTURE(Taker, "share room: who waits is not asked for its own want, whatever it says meanwhile") {
    desk.join(2, 10);
    desk.join(3, 10);
    CHECK(desk.want(1, 8, 11, long_time).heard() == "2 lend 8");
    desk.want(2, 30, 21, long_time); // behind the other
    CHECK(desk.recent(2, 5ms).heard() == "3 lend 8");
    CHECK(desk.leave(3).heard() == "2 lend 8");
    desk.say(2, Kind::gave, 0);
    CHECK(desk.say(1, Kind::cancel, 0, 11).heard().empty());
    CHECK(desk.tell(2, {.lends = 2}).heard().empty());
}

TEST_CASE_FIXTURE(Taker, "share room: waiting members are served by priority, then by age, and nobody overtakes") {
    desk.join(2, 0, 0, 0, false);
    desk.join(3, 0, 7, 0, false);
    desk.join(4, 0, 3, 0, false);
    desk.want(1, 5, 11, long_time);
    desk.want(2, 2, 21, long_time);
    desk.want(3, 8, 31, long_time);
    desk.free = 4;
    CHECK(desk.want(4, 1, 41).heard() == "4 deny 1"); // does not wait: what is free is for those ahead
    CHECK(desk.say(4, Kind::freed, 0).heard().empty());
    desk.free = 8;
    CHECK(desk.say(4, Kind::freed, 4).heard() == "3 grant 8");
    CHECK(desk.say(3, Kind::unused, 8).heard() == "1 grant 5, 2 grant 2");
}

TEST_CASE_FIXTURE(Taker, "share room: who comes after a cancelled request does not wait for the answer to it") {
    desk.join(2, 0, 0, 0, false);
    desk.join(3, 8);
    desk.pass(3, 4, false, 0, 10s);
    desk.free = 4;
    CHECK(desk.want(1, 12, 11, long_time).heard() == "3 lend 4");
    CHECK(desk.want(2, 8, 21).heard().empty());                               // what is there is for the first one
    CHECK(desk.say(1, Kind::cancel, 0, 11).heard() == "2 page 4, 2 grant 4"); // although 3 may pass more
}

TEST_CASE_FIXTURE(Taker, "share room: a lender that does not answer is passed by, and so is one that leaves") {
    desk.join(2, 10);
    desk.join(3, 10);
    desk.join(4, 10);
    CHECK(desk.want(1, 8, 11).heard() == "2 lend 8");
    REQUIRE(desk.room.next().has_value());
    desk.room.look(*desk.room.next() - 1ns);
    CHECK(desk.heard().empty());
    CHECK(desk.look_next().heard() == "3 lend 8");
    CHECK(desk.leave(3).heard() == "4 lend 8");
    CHECK(desk.give(2, 8).heard() == "1 grant 8"); // late: welcome all the same, at the next look
}

TEST_CASE_FIXTURE(Taker, "share room: a lender that says that it is giving has more time, but not without end") {
    desk.join(2, 10);
    CHECK(desk.want(1, 8, 11).heard() == "2 lend 8");
    const auto begun = desk.now;
    while (desk.now < begun + ShareRoom::gives_within) {
        desk.now += 50ms;
        desk.say(1, Kind::still, 0, 11);
        desk.say(2, Kind::giving, 0, desk.asked);
        if (desk.now < begun + ShareRoom::gives_within - 100ms) REQUIRE(desk.heard().empty());
    }
    desk.room.look(desk.now + 50ms);
    CHECK(desk.heard() == "1 deny 8");
}

TEST_CASE_FIXTURE(Taker, "share room: who begins to lend is asked at once, and counts as idle from then on") {
    desk.join(2, 10, 0, 0, false);
    desk.join(3, 10);
    const auto lends = [&](int link, bool yes) { desk.tell(link, {.lends = yes ? 1U : 0U}); };
    CHECK(desk.want(1, 10, 11, long_time).heard() == "3 lend 10");
    CHECK(desk.say(3, Kind::gave, 0).heard() == "2 lend 10"); // it could only pass what it releases
    lends(2, true);
    CHECK(desk.say(2, Kind::gave, 0).heard() == "2 lend 10");
    CHECK(desk.say(2, Kind::gave, 0).heard().empty());
    desk.say(1, Kind::cancel, 0, 11);
    lends(3, false);
    lends(3, true); // it was busy after 2
    CHECK(desk.want(1, 5, 12).heard() == "2 lend 5");
}

TEST_CASE("share room: one member's grants do not count twice when it reports to another leader") {
    Desk desk;
    ShareFacts facts;
    facts.granted = 6;
    desk.free = 10;
    desk.now += ShareRoom::gathers;
    desk.join(1, facts);
    desk.join(2, 0, 0, 0, false);
    CHECK(desk.want(2, 5, 21).heard() == "2 deny 5");
    CHECK(desk.want(2, 4, 22).heard() == "2 grant 4");
}

TEST_CASE("share room: a new leader waits for members to come before it says no") {
    Desk desk;
    ShareFacts facts;
    desk.join(1, facts);
    CHECK(desk.want(1, 8, 11).heard().empty());
    facts.held = 10;
    facts.lends = 1;
    CHECK(desk.join(2, facts).heard() == "2 lend 8");
    CHECK(desk.say(2, Kind::gave, 0).heard().empty());
    CHECK(desk.look_next().heard() == "1 deny 8");
}

TEST_CASE_FIXTURE(Taker, "share room: messages sent before a request count, whichever connection is read first") {
    desk.free = 10;
    desk.join(2, 0, 0, 0, false);
    CHECK(desk.want(2, 6, 21).heard() == "2 grant 6");
    desk.free = 4;
    desk.held_back = true;
    desk.want(1, 4, 11);
    desk.say(2, Kind::took, 6);
    CHECK(desk.look().heard() == "1 grant 4");

    desk.want(1, 8, 12);
    desk.tell(2, {.lends = 1, .held = 6});
    CHECK(desk.look().heard() == "2 lend 6");
}

TEST_CASE_FIXTURE(Taker,
                  "share room: pages that are passed go to who is granted, and the rest is granted as free memory") {
    desk.free = 2;
    desk.join(2, 20);
    CHECK(desk.want(1, 10, 11).heard() == "2 lend 8");
    desk.pass(2, 4);
    desk.pass(2, 8);           // too large beside the first
    desk.pass(2, 3, true);     // not cleared, and not trusted
    desk.pass(2, 3, false, 1); // of another kind
    CHECK(desk.say(2, Kind::gave, 18).heard() == "1 page 4, 1 grant 6");
    desk.free = 2 + 8 + 3 + 3; // what was not passed on
    CHECK(desk.want(2, 11, 21).heard() == "2 deny 11");
    desk.say(1, Kind::turned, 4); // the page is the driver's: as much more is granted to it
    desk.free += 4;
    CHECK(desk.want(2, 11, 22).heard() == "2 deny 11");
    CHECK(desk.want(2, 10, 23).heard() == "2 grant 10");
}

TEST_CASE_FIXTURE(Taker, "share room: passed pages serve who comes first by then, and are no longer the giver's") {
    desk.join(2, 8, 0, 4);
    ShareFacts facts;
    facts.priority = 5;
    facts.trusted = 1;
    desk.join(3, facts);
    CHECK(desk.want(1, 8, 11, long_time).heard() == "2 lend 4");
    CHECK(desk.want(3, 4, 31).heard().empty());
    desk.pass(2, 4, true);
    CHECK(desk.say(2, Kind::gave, 4).heard() == "3 page 4, 3 grant 0, 3 lend 4"); // 2 has no more than its floor
    desk.leave(3);
    desk.leave(1);
    desk.join(4, 0, 0, 0, false);
    CHECK(desk.want(4, 4, 41).heard() == "4 deny 4");
}

TEST_CASE_FIXTURE(Taker, "share room: a want takes the pages that are coming rather than free memory") {
    desk.free = 6;
    desk.join(2, 8);
    CHECK(desk.want(1, 8, 11).heard() == "2 lend 2");
    desk.pass(2, 4);
    CHECK(desk.look().heard().empty());
    desk.pass(2, 4);
    CHECK(desk.look().heard() == "1 page 4, 1 page 4, 1 grant 0");
    desk.say(2, Kind::gave, 8);
    desk.say(1, Kind::freed, 8);
    desk.look();
    CHECK(desk.want(1, 10, 12).heard() == "1 deny 10"); // 2 has no more
}

TEST_CASE_FIXTURE(Taker,
                  "share room: pages of which the giver still has a descriptor are not counted, and go to nobody") {
    desk.join(2, 8);
    CHECK(desk.want(1, 8, 11).heard() == "2 lend 8");
    desk.pass(2, 8, false, 0, 10s, false);
    CHECK(desk.look().heard().empty());
    test::either("leaves", "lets go") ? desk.leave(2) : desk.say(2, Kind::freed, 8);
    CHECK(desk.heard() == "1 page 8, 1 grant 0");
}

TEST_CASE_FIXTURE(Taker, "share room: each lender is to pass no more than is lacking still") {
    desk.join(2, 4);
    desk.join(3, 9, 1);
    CHECK(desk.want(1, 12, 11, long_time).heard() == "2 lend 4");
    CHECK(desk.as_pages == 12);
    desk.pass(2, 4);
    CHECK(desk.say(2, Kind::gave, 4).heard() == "3 lend 8");
    CHECK(desk.as_pages == 8);
}

TEST_CASE_FIXTURE(Taker, "share room: pages that their owner releases wait a moment for more of them") {
    desk.join(2, 12);
    CHECK(desk.want(1, 8, 11, long_time).heard() == "2 lend 8");
    desk.say(2, Kind::gave, 0);
    const auto pass = [&] {
        desk.pass(2, 4);
        desk.look();
    };
    pass();
    desk.now += ShareRoom::pages_wait - 1ms;
    desk.look();
    (void)desk.heard(); // asks again
    desk.say(2, Kind::gave, 0);
    REQUIRE(desk.room.next().has_value());
    desk.now = *desk.room.next(); // too late: they are the driver's
    desk.look();
    pass();
    CHECK(desk.heard().find("grant") == std::string::npos);
    pass();
    CHECK(desk.heard() == "1 page 4, 1 page 4, 1 grant 0");
}

TEST_CASE("share room: pages that linger are free memory, and go to who takes as much") {
    for (const bool forever : {false, true}) {
        const auto lingers = forever ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds{10s};
        Desk desk;
        desk.join(1, 0, 0, 0, false);
        desk.join(2, 40);
        for (const std::uint64_t bytes : {8U, 8U, 4U}) desk.pass(2, bytes, false, 0, lingers);
        desk.look();
        CHECK(desk.want(1, 8, 11, ShareRoom::only_free).heard() == "1 page 8, 1 grant 0"); // for one handle
        CHECK(desk.want(1, 3, 12, ShareRoom::only_free).heard() ==
              "1 grant 3"); // of no page's size: the driver gets the last one
        desk.free = 1;      // what was left of it
        desk.say(1, Kind::took, 3);
        CHECK(desk.want(1, 8, 13, ShareRoom::only_free).heard() == "1 page 8, 1 grant 0");
        desk.pass(2, 8, false, 0, lingers);
        desk.now = *desk.room.next();
        CHECK(desk.now >=
              ShareRoom::Clock::time_point{} + (forever ? ShareRoom::longest : std::chrono::nanoseconds{10s}));
        desk.look();
        CHECK_FALSE(desk.room.next().has_value());
        desk.free = 0; // the driver has not freed them yet
        CHECK(desk.want(1, 8, 14, ShareRoom::only_free).heard() == "1 deny 8");
    }
}

TEST_CASE("share room: pages linger no longer because others come") {
    Desk desk;
    desk.join(1, 40);
    const auto until = desk.now + 150ms;
    desk.pass(1, 4, false, 0, 150ms);
    desk.now += 100ms;
    desk.pass(1, 4);
    REQUIRE(desk.room.next().has_value());
    CHECK(*desk.room.next() == until);
}

TEST_CASE_FIXTURE(Taker, "share room: where outsiders took what was granted, all pages needed go to the driver") {
    desk.join(2, 40);
    for (int i = 0; i < 3; ++i) desk.pass(2, 4, false, 0, 10s);
    desk.free = 8;
    CHECK(desk.want(1, 8, 11, ShareRoom::only_free).heard() == "1 grant 8"); // for one handle, of no page's size
    desk.free = 2;                                                           // 8 - 6
    CHECK(desk.want(1, 6, 12, ShareRoom::only_free).heard() == "1 grant 6");
    CHECK_FALSE(desk.room.next().has_value()); // 2 + 12 are just enough for 8 and 6
}

TEST_CASE_FIXTURE(Taker,
                  "share room: a member's own threads, and who is asked for room, are not behind one that waits") {
    desk.free = 6;
    desk.join(2, 10);
    desk.join(3, 0);
    CHECK(desk.want(1, 8, 11, long_time).heard() == "2 lend 2");
    CHECK(desk.want(3, 1, 31, ShareRoom::only_free).heard() == "3 deny 1");
    CHECK(desk.want(1, 1, 12, ShareRoom::only_free).heard() == "1 grant 1");
    CHECK(desk.want(2, 1, 21, ShareRoom::only_free).heard() == "2 grant 1");
    desk.pass(2, 4);
    CHECK(desk.want(2, 5, 22, ShareRoom::only_free).heard() == "2 deny 5"); // the pages are for the one that waits
    CHECK(desk.say(2, Kind::gave, 4).heard() == "1 page 4, 1 grant 4");
}
} // namespace share_room_test
