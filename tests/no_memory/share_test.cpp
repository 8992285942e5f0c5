// The leader of a share runs out of host memory: no want is lost or served twice, and who was not heard comes back.
#include "failing_new.hpp"
#include "share/share_support.hpp"
#include "support/machines.hpp"

#include <atomic>

namespace no_memory_share_test {
using namespace test;
using namespace share_support;
using detail::ShareFacts;
using detail::ShareMessage;
using detail::ShareRoom;
using Kind = ShareMessage::Kind;

TEST_CASE("share room: each allocation of a look fails, and the next one serves all, each once") {
    const int failures = no_memory::sweep(
        [] {
            const long fails = std::exchange(no_memory::countdown, -1);
            std::uint64_t asked = 0;
            int grants = 0;
            ShareRoom::Clock::time_point now{};
            ShareRoom room{[&](int /*link*/, const ShareMessage& message, int /*descriptor*/) {
                               if (message.kind == Kind::lend) asked = message.id;
                               grants += message.kind == Kind::grant ? 1 : 0;
                               return true;
                           },
                           [] { return std::optional<std::uint64_t>{100}; }, 100ms, now};
            for (const int link : {1, 2, 3, 4, 5}) {
                ShareFacts facts{.priority = link == 1 ? 1 : 0, .lends = 1, .held = link > 3 ? 1000U : 0};
                room.join(link, facts, now);
            }
            const auto say = [&](int link, Kind kind, std::uint64_t bytes, std::uint64_t id) {
                room.hear(link, {.kind = kind, .id = id, .bytes = bytes, .within = ShareRoom::without_limit}, now);
            };
            say(2, Kind::want, 500, 21);
            now += 3s;                   // it is stopped
            say(1, Kind::want, 10, 11);  // is granted
            say(3, Kind::want, 600, 31); // for which others are asked
            bool failed = false;
            no_memory::countdown = fails;
            try {
                room.look(now);
            } catch (const std::bad_alloc&) {
                failed = true;
            }
            no_memory::countdown = -1;
            room.look(now);
            say(4, Kind::recent, 0, asked);
            CHECK(grants == 1);
            if (failed) throw std::bad_alloc{};
        },
        [] {});
    CHECK(failures > 0);
}

TEST_CASE_FIXTURE(OnPlace, "share: whom a leader without memory has not heard comes back") {
    const FaultyDriver<HostDriver> device{place.device()};
    std::atomic<int> fails{-1};
    const auto here = std::this_thread::get_id();
    device.on_call([&](const CallRecord& call) { // of the leader's thread
        if (call.call != Call::memory || std::this_thread::get_id() == here) return;
        if (const int n = fails.exchange(-1); n >= 0) no_memory::countdown = n;
    });
    const Share leader{device, {.name = "leader", .answer_within = 200ms, .folder = place.folder}};
    for (int n = 0; n < 14; ++n) {
        CAPTURE(n);
        const Share member{place.device(), {.name = "member", .answer_within = 200ms, .folder = place.folder}};
        CHECK(soon([&] { return member.members().size() == 2; }));
        fails = n;
        PageHandle pages;
        const bool made = member.driver().create(page, pages).ok();
        std::this_thread::sleep_for(20ms);
        (void)member.members();
        CHECK(soon([&] { return member.members().size() == 2; }));
        if (made) CHECK(member.driver().release(pages).ok());
    }
    device.on_call({});
}

} // namespace no_memory_share_test
