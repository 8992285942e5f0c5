// An event sink that calls the saver: Misuse at any event of any call, and the call itself goes on.
#include "support/every_call.hpp"
#include "support/machines.hpp"

namespace saver_event_sink_test {
using namespace test;
using Saver = MemorySaver<>;

TEST_CASE("event sink: each call that it makes is misuse, at each event, and the reported operation goes on") {
    auto calls = every_call<Saver>();
    calls.push_back({"usage of an arena", [](Saver&, const Arena& a, void*) { (void)a.usage(); }});
    calls.push_back({"region of an arena", [](Saver&, const Arena& a, void*) { const Region region{a}; }});
    for (const auto& each : calls) {
        const std::string name = each.name;
        CAPTURE(name);
        CHECK(within_seconds(60, [&] {
            Saver* self = nullptr;
            Arena a;
            void* block = nullptr;
            std::atomic<int> events{0};
            std::atomic<int> refused{0};
            const auto sink = [&](const Event&) {
                if (self == nullptr) return;
                ++events;
                try {
                    each.call(*self, a, block);
                } catch (const Misuse& error) {
                    if (contains(error.what(), "event sink")) ++refused;
                }
            };
            {
                Saver saver{AnyDriver{HostDriver{64_MiB}}, {.events = sink}};
                a = saver.arena("a", HostBackup{.threads = 2});
                (void)saver.arena("b", HostBackup{.refresh = Refresh::once, .threads = 1}).allocate(1_MiB);
                block = a.allocate(3_MiB);
                self = &saver;
                pause_and_resume(saver, "a");
                saver.save("b").wait();
                (void)saver.pause("b");
                (void)saver.exchange("a", "b");
                saver.resume_async("a").wait();
                (void)saver.trim();
                self = nullptr;
                if (saver.usage().size() != 2) return false;
                a = {};
            }
            return events.load() > 10 && refused.load() == events.load();
        }));
    }
}

TEST_CASE("event sink: a tag's own sink is refused too, and other threads may call meanwhile") {
    CHECK(within_seconds(60, [] {
        Saver* self = nullptr;
        int refused = 0;
        int passed = 0;
        const auto sink = [&](const Event& event) {
            if (self == nullptr || event.kind != EventKind::progress) return;
            try {
                (void)self->usage();
            } catch (const Misuse&) {
                ++refused;
            }
            std::thread{[&] {
                (void)self->arena("b").allocate(1000);
                ++passed;
            }}.join();
        };
        Saver saver{AnyDriver{HostDriver{64_MiB}}};
        (void)saver.arena("a", HostBackup{.threads = 1}, {.events = sink}).allocate(3_MiB);
        self = &saver;
        (void)saver.pause("a");
        return refused > 0 && passed == refused;
    }));
}

TEST_CASE("event sink: what it ends on the thread of an operation on the tag does not wait for that operation") {
    enum class What : unsigned char { elastic, pool, arrival };
    for (const What what : {What::elastic, What::pool, What::arrival}) {
        CAPTURE(what);
        CHECK(within_seconds(60, [what] {
            std::optional<Elastic> range;
            std::optional<WorkspacePool> pool;
            std::optional<Arrival> arrival;
            int ended = 0;
            bool armed = false;
            const HostDriver host{64_MiB};
            {
                const EventKind when = what == What::arrival ? EventKind::ended : EventKind::began;
                const std::string during = what == What::arrival ? "restore" : "save";
                Saver saver{AnyDriver{host}, {.events = [&](const Event& event) {
                                if (!armed || event.kind != when || event.text != during) return;
                                ++ended;
                                range.reset();
                                pool.reset();
                                arrival.reset();
                            }}};
                const Arena arena = saver.arena("a", HostBackup{});
                (void)arena.allocate(1_MiB);
                if (what == What::elastic) range.emplace(arena.elastic(4_MiB, {.granularity = 2_MiB})).commit(0, 1);
                if (what == What::pool) (void)pool.emplace(arena).get("workspace", 1_MiB);
                if (what == What::arrival) {
                    (void)saver.pause("a");
                    arrival.emplace(saver.resume_async("a"));
                }
                armed = true;
                (void)saver.pause("a");
                armed = false;
                (void)saver.resume("a");
            }
            return ended == 1 && host.counts() == HostCounts{};
        }));
    }
}
} // namespace saver_event_sink_test
