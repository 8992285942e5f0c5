// Time limits: the maximum of every duration means for ever, 0 and less not to wait, and times are never misread.
#include "memsaver/saver/residents.hpp"
#include "support/each_of.hpp"

namespace saver_time_limits_test {
using namespace test;
using namespace std::chrono;

constexpr std::size_t unit = 64_KiB;

/// Every maximum that a program can write: one value.
const TimeLimit for_ever[] = {nanoseconds::max(),      microseconds::max(),
                              milliseconds::max(),     seconds::max(),
                              minutes::max(),          hours::max(),
                              duration<double>::max(), duration<double>{std::numeric_limits<double>::infinity()},
                              hours{24 * 365 * 1000}};

/// Tag "a" is paused and does not fit: "b" holds the memory that it needs, until `make_room`.
struct Short {
    HostDriver driver{64 * unit, {.granularity = unit}};
    MemorySaver<> saver{AnyDriver{driver}};
    Arena a = saver.arena("a", HostBackup{.threads = 1});
    Arena b = saver.arena("b", Discard{});
    void* other = nullptr;

    Short() {
        (void)a.allocate(40 * unit);
        saver.pause(Tags{"a"});
        other = b.allocate(40 * unit);
    }
    void make_room() {
        b.deallocate(other, already_idle);
        saver.trim(Tags{"b"}, {.order = already_idle});
    }
};

/// Returns whether `act` succeeds, with `meanwhile` on another thread once `act` has begun for long enough to give up.
bool waits_for(const std::function<void()>& act, const std::function<void()>& meanwhile) {
    std::thread helper{[&] {
        std::this_thread::sleep_for(milliseconds{20});
        meanwhile();
    }};
    bool good = true;
    try {
        act();
    } catch (const Error&) {
        good = false;
    }
    helper.join();
    return good;
}

TEST_CASE("time limits: room_within of the maximum waits until there is room") {
    const TimeLimit limit = for_ever[0];
    const std::function<void(Short&)> acts[] = {
        [&](Short& s) { s.saver.resume(Tags{"a"}, {.room_within = limit}); },
        [&](Short& s) { s.saver.resume_async(Tags{"a"}, {.room_within = limit}).wait(); },
        [&](Short& s) {
            (void)s.saver.arena("out", Discard{}).allocate(unit);
            s.saver.exchange(Tags{"out"}, Tags{"a"}, {.order = already_idle, .room_within = limit});
        },
    };
    for (const auto& act : acts) {
        CHECK(within_seconds(30, [&] {
            Short s;
            return waits_for([&] { act(s); }, [&] { s.make_room(); });
        }));
    }
    CHECK(within_seconds(30, [&] {
        Short s;
        std::optional<Use> held;
        std::thread{[&] { held.emplace(s.saver.use(Tags{"b"})); }}.join(); // this thread would not await its own
        return waits_for([&] { const Use use = s.saver.use(Tags{"a"}, {.room_within = limit}); },
                         [&] { held.reset(); });
    }));
    CHECK(within_seconds(30, [&] {
        const HostDriver driver{64 * unit, {.granularity = unit}};
        TaggedArena<HostDriver, Discard> a{driver, "a"};
        (void)a.allocate(40 * unit);
        a.pause();
        PageHandle handle{};
        if (!driver.create(40 * unit, handle).ok()) return false;
        return waits_for([&] { a.resume({.room_within = limit}); }, [&] { (void)driver.release(handle); });
    }));
}

TEST_CASE("time limits: a timeout of the maximum waits for uses, marked work and other operations") {
    const TimeLimit timeout = for_ever[0];
    const std::function<void(MemorySaver<>&)> acts[] = {
        [&](auto& saver) { saver.pause(Tags{"a"}, {.timeout = timeout}); },
        [&](auto& saver) { saver.trim(Tags{"a"}, {.timeout = timeout}); },
        [&](auto& saver) { saver.save(Tags{"a"}, {.timeout = timeout}).wait(); },
        [&](auto& saver) { saver.exchange(Tags{"a"}, Tags{"b"}, {.timeout = timeout}); },
    };
    for (const auto& act : acts) {
        CHECK(within_seconds(30, [&] {
            const HostDriver driver{64 * unit, {.granularity = unit}};
            MemorySaver<> saver{AnyDriver{driver}};
            (void)saver.arena("a", HostBackup{.refresh = Refresh::once, .threads = 1}).allocate(unit);
            (void)saver.arena("b", HostBackup{.threads = 1}).allocate(unit);
            saver.pause(Tags{"b"});
            const HeldStream stream{driver};
            return waits_for([&] { act(saver); }, [&] { stream.let_go(); });
        }));
    }
}

TEST_CASE("time limits: a pause after one that left pages mapped does not wait longer than its timeout") {
    for (const bool paused : {true, false}) { // by a pause, or by a trim
        CAPTURE(paused);
        CHECK(within_seconds(30, [&] {
            const MachineDriver driver{HostDriver{64 * unit, {.granularity = unit}}};
            MemorySaver<MachineDriver> saver{driver};
            const Arena arena = saver.arena("a", HostBackup{.threads = 1});
            void* const block = arena.allocate(unit);
            if (!paused) arena.deallocate(block);
            driver.fail({.call = Call::unmap});
            try {
                (void)(paused ? saver.pause() : saver.trim());
                return false;
            } catch (const DriverError&) { // its pages are held
            }
            const HeldStream stream{driver};
            return saver.pause(Tags::all(), {.timeout = milliseconds{5}}).released_bytes != 0;
        }));
    }
}

TEST_CASE("time limits: 0 and less do not wait, whatever the duration") {
    const TimeLimit none[] = {0s, -1s, nanoseconds::min(), hours::min(), duration<double>::min()};
    for (const TimeLimit& limit : none) {
        Short s;
        CHECK_THROWS_AS(s.saver.resume(Tags{"a"}, {.room_within = limit}), OutOfMemory);
        const Use use = s.saver.use(Tags{"b"});
        std::thread{[&] { CHECK_THROWS_AS(s.saver.pause(Tags{"b"}, {.timeout = limit}), NotIdle); }}.join();
    }
}

TEST_CASE("time limits: values are converted exactly, or saturate") {
    for (const TimeLimit& limit : for_ever) CHECK(limit == TimeLimit{nanoseconds::max()});
    CHECK(TimeLimit{5s} == TimeLimit{5000ms});
    CHECK(*TimeLimit{duration<double>{0.25}} == 250ms);
    CHECK(*TimeLimit{nanoseconds{nanoseconds::max().count() - 1}} == nanoseconds{nanoseconds::max().count() - 1});
    CHECK(*TimeLimit{hours::min()} == nanoseconds::min());
    CHECK(!TimeLimit{});
    CHECK(!TimeLimit{std::nullopt});
    CHECK(TimeLimit{std::optional<nanoseconds>{3ns}} == TimeLimit{3ns});
    CHECK(!deadline_after(nanoseconds::max()));
    CHECK(!deadline_after({}));
    const Deadline at_once = deadline_after(nanoseconds::min());
    CHECK(*at_once <= steady_clock::now());
    const std::string text = text_of<Misuse>([] { (void)TimeLimit{duration<double>{std::nan("")}}; });
    CHECK(contains(text, "not a number"));
    CHECK(contains(text, "0 or more"));
}

TEST_CASE("time limits: a machine whose copies stall for ever counts no overflow") {
    const HostDriver driver{64 * unit, {.granularity = unit}};
    REQUIRE(driver.stall_copies(hours::max()).ok());
    REQUIRE(driver.stall_copies(nanoseconds{0}).ok()); // copies go on
    MemorySaver<> saver{AnyDriver{driver}};
    (void)saver.arena("a", HostBackup{.threads = 1, .kernel_copies = {.after = hours::max()}}).allocate(unit);
    pause_and_resume(saver);
}

TEST_CASE_FIXTURE(OnSaver, "a pause that does not wait for another operation names the tag that it is on") {
    (void)saver.arena("a").allocate(2_MiB);
    const Arena b = saver.arena("b");
    const bool pauses = either("a pause", "a trim");
    b.deallocate(b.allocate(2_MiB), already_idle);
    Stuck other{machine.driver, Call::unmap, [&] { pauses ? (void)saver.pause("b") : (void)saver.trim("b"); }};
    CHECK(thrown<NotIdle>([&] { (void)saver.pause({"a", "b"}, {.timeout = milliseconds{10}}); }).tag() == "b");
    other.go_on();
}
} // namespace saver_time_limits_test
