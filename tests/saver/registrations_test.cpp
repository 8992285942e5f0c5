// Registered memory: what a pause refuses, what it deregisters and registers again, and the state after failures.
#include "support/each_of.hpp"

namespace saver_registrations_test {
using namespace test;
using Calls = std::vector<std::string>;

/// A mock network card that records its calls.
struct Card {
    std::vector<std::string> calls;
    std::string fails; ///< the next call with this text throws

    void call(const std::string& text) {
        calls.push_back(text);
        if (text != fails) return;
        fails.clear();
        throw std::runtime_error{"no " + text};
    }
    [[nodiscard]] RegistrationOptions of(const std::string& who) {
        return {.who = who,
                .on_pause = OnPause::renew,
                .on_register = [this, who] { call("+" + who); },
                .on_deregister = [this, who] { call("-" + who); }};
    }
    [[nodiscard]] std::vector<std::string> taken() { return std::exchange(calls, {}); }
};

struct Nets : OnSaver {
    Card card{};
    Registrations nets{saver};
};

/// The same whose barrier is a call on the card too, with a block of tag "a" and one of tag "b", each registered.
struct OnBarrier : OnSaver {
    Card card{};
    Registrations nets{saver, {.barrier = [this](const PauseEvent&) { card.call("barrier"); }}};
    const Buffer<char> a{saver.arena("a", HostBackup{}), 2_MiB};
    const Buffer<char> b{saver.arena("b", HostBackup{}), 2_MiB};
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    Registration second = nets.add(b.data(), b.size(), card.of("b"));
};

TEST_CASE_FIXTURE(Nets, "registrations: a pause of registered memory is refused, by name" * on_machines) {
    const Buffer<char> mine{saver.arena("net", HostBackup{}), 2_MiB};
    const Buffer<char> other{saver.arena("other"), 2_MiB};
    Registration pinned = nets.add(mine.data() + 256, 1_MiB, {.who = "mlx5_0"});
    CHECK(pinned.registered());
    for (int i = 0; i < 2; ++i) {
        const std::string text = text_of<Misuse>([&] { saver.pause(); });
        for (const char* part : {"\"net\"", "\"mlx5_0\"", "1.00 MiB"}) CHECK_MESSAGE(contains(text, part), text);
        CHECK(machine.driver.handle_bytes() == 4_MiB);
    }
    CHECK_THROWS_AS(saver.exchange("net", "other"), Misuse);
    saver.pause("other"); // has no registrations
    CHECK(machine.driver.handle_bytes() == 2_MiB);
    {
        const Registration second = nets.add(mine.data(), 256, {.who = "ucx"});
        check_says<Misuse>("1 more", [&] { saver.pause("net"); });
    }
    pinned.end();
    CHECK_FALSE(pinned.registered());
    pinned.end();
    saver.pause("net");
    CHECK(machine.driver.handle_bytes() == 0);
    saver.resume();
}

TEST_CASE_FIXTURE(Nets, "registrations: a function may not use: whoever moves tags may wait for it" * on_machines) {
    const Buffer<char> mine{saver.arena("net"), 2_MiB};
    const auto uses = [&] { (void)saver.use("net"); };
    CHECK_THROWS_AS((void)nets.add(mine.data(), 256, {.on_register = uses, .on_deregister = [] {}}), Misuse);
}

TEST_CASE_FIXTURE(OnSaver, "registrations: renewed in order, with the memory in place each time" * on_machines) {
    Card card;
    Registrations nets{saver, {.barrier = [&](const PauseEvent& event) {
                           CHECK(event.tags == Calls{"net"});
                           card.call("barrier");
                       }}};
    const Filled a{machine.driver, saver.arena("net", HostBackup{}), 2_MiB};
    const Buffer<char> b{saver.arena("net"), 2_MiB};
    const Buffer<char> far{saver.arena("far"), 2_MiB};
    Registration all = nets.add(Tags::all(), card.of("comm"));
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    Registration elsewhere = nets.add(far.data(), far.size(), card.of("far"));
    Registration second = nets.add(b.data(), b.size(), card.of("b"));
    CHECK(card.taken() == Calls{"+a", "+far", "+b"});
    for (int i = 0; i < 3; ++i) {
        saver.pause("net");
        CHECK(card.taken() == Calls{"barrier", "-b", "-a", "-comm"});
        CHECK_FALSE(first.registered());
        CHECK(elsewhere.registered());
        saver.pause("net"); // again: nothing to deregister
        CHECK(card.taken().empty());
        saver.resume("net");
        CHECK(card.taken() == Calls{"+comm", "+a", "+b"});
        CHECK(a.whole());
    }
    saver.pause("net");
    (void)card.taken();
    second.end(); // while paused: no call
    CHECK(card.taken().empty());
    saver.resume("net");
    CHECK(card.taken() == Calls{"+comm", "+a"});
    all.end();
    Registration& same = first;
    first = std::move(same); // keeps its value
    CHECK(card.taken().empty());
    CHECK(first.registered());
    first = Registration{}; // replaced by assignment: it ends
    CHECK(card.taken() == Calls{"-a"});
}

TEST_CASE_FIXTURE(OnBarrier, "registrations: a pause that fails leaves all registered that is here" * on_machines) {
    (void)card.taken();
    SUBCASE("a function of the program's") {
        card.fails = "-a";
        CHECK_THROWS_WITH_AS(saver.pause(), "no -a", std::runtime_error);
        CHECK(card.taken() == Calls{"barrier", "-b", "-a", "+b"});
    }
    SUBCASE("the barrier: ranks do not agree") {
        card.fails = "barrier";
        CHECK_THROWS_AS(saver.pause(), std::runtime_error);
        CHECK(card.taken() == Calls{"barrier"});
    }
    SUBCASE("another hook") {
        const Hook no = saver.before_pause([](PauseEvent&) { throw std::runtime_error{"not now"}; });
        CHECK_THROWS_WITH_AS(saver.pause(), "not now", std::runtime_error);
        CHECK(card.taken() == Calls{"barrier", "-b", "-a", "+a", "+b"});
    }
    CHECK((first.registered() && second.registered()));
    CHECK(machine.driver.handle_bytes() == 4_MiB);
    saver.pause();
    CHECK(card.taken() == Calls{"barrier", "-b", "-a"});
    CHECK(machine.driver.handle_bytes() == 0);
    saver.resume();
}

TEST_CASE_FIXTURE(Nets, "registrations: a failure to register again is reported, and retried" * on_machines) {
    const Filled a{machine.driver, saver.arena("net", HostBackup{}), 2_MiB, 9};
    Registration first = nets.add(a.data(), 1_MiB, card.of("a"));
    Registration second = nets.add(a.data() + 1_MiB, 1_MiB, card.of("b"));
    saver.pause();
    (void)card.taken();
    nets.renew(); // nothing is resident
    CHECK(card.taken().empty());
    card.fails = "+a";
    CHECK_THROWS_WITH_AS(saver.resume(), "no +a", std::runtime_error);
    CHECK(card.taken() == Calls{"+a", "+b"});
    CHECK(a.whole()); // the resume remains in effect
    CHECK_FALSE(first.registered());
    CHECK(second.registered());
    nets.renew();
    CHECK(first.registered());
    CHECK(card.taken() == Calls{"+a"});
}

TEST_CASE_FIXTURE(Nets, "registrations: exchange, eviction and a streamed resume respect them too" * on_machines) {
    const Buffer<char> a{saver.arena("a", HostBackup{}, ArenaOptions{.evictable = true}), 2_MiB};
    const Buffer<char> b{saver.arena("b", HostBackup{}), 2_MiB};
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    saver.pause("b");
    CHECK(card.taken() == Calls{"+a"});
    Registration all = nets.add("a", card.of("comm"));
    saver.exchange("a", "b");
    CHECK(card.taken() == Calls{"-comm", "-a"});
    saver.exchange("b", "a");
    CHECK(card.taken() == Calls{"+a", "+comm"});
    CHECK(saver.reclaim(2_MiB).evicted_bytes == 2_MiB);
    CHECK(card.taken() == Calls{"-comm", "-a"});
    saver.resume_async("a").wait();
    CHECK(card.taken() == Calls{"+a", "+comm"});
    Registration refusing = nets.add(a.data(), 256, {.who = "peer"});
    CHECK(saver.reclaim(2_MiB).evicted_bytes == 0); // skipped and unchanged
    CHECK(first.registered());
    CHECK(card.taken().empty());
}

TEST_CASE_FIXTURE(OnSaver, "registrations: memory resumed before the hooks of its pause is registered after them") {
    Card card;
    Turnstile paused;
    const Hook slow = saver.after_pause([&](PauseEvent&) { paused.pass(); });
    Registrations nets{saver};
    const Buffer<char> a{saver.arena("a", HostBackup{}), 2_MiB};
    Registration all = nets.add(Tags::all(), card.of("comm"));
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    Doing other{[&] { saver.pause("a"); }};
    paused.await();
    saver.resume("a");
    paused.open();
    other.join();
    CHECK(first.registered());
    CHECK(all.registered());
    CHECK(card.taken() == Calls{"+a", "-a", "-comm", "+comm", "+a"});
}

TEST_CASE_FIXTURE(Nets, "registrations: a refusal names the tag that was to be paused") {
    const Buffer<char> mine{saver.arena("mine"), 2_MiB};
    const Buffer<char> other{saver.arena("other"), 2_MiB};
    Registration comm = nets.add(Tags{"other"}, card.of("comm"));
    Registration pinned = nets.add(mine.data(), 256, {.who = "card"}, &comm);
    const std::string text = text_of<Misuse>([&] { (void)saver.pause("other"); });
    CHECK(contains(text, "\"other\""));
    CHECK(contains(text, "\"card\""));
    CHECK(comm.registered());
}

TEST_CASE_FIXTURE(Nets, "registrations: renew() leaves alone registrations that depend on paused tags") {
    const Buffer<char> a{saver.arena("net/a", HostBackup{}), 2_MiB};
    const Buffer<char> b{saver.arena("net/b", HostBackup{}), 2_MiB};
    Registration named = nets.add(Tags{"net/a"}, card.of("named"));
    Registration under = nets.add(Tags::under("net/"), card.of("under"));
    Registration all = nets.add(Tags::all(), card.of("all"));
    saver.pause();
    nets.renew();
    CHECK(card.taken() == Calls{"-all", "-under", "-named"});
    card.fails = "+named";
    CHECK_THROWS_AS(saver.resume("net/a"), std::runtime_error);
    CHECK(card.taken() == Calls{"+named", "+under", "+all"});
    nets.renew();
    CHECK(card.taken() == Calls{"+named"});
}

TEST_CASE("registrations: after an eviction that fails, memory that stayed or was resumed is registered") {
    const bool saving = either("saving", "releasing");
    const MachineDriver driver{HostDriver{64_MiB}};
    MemorySaver saver{driver};
    Card card;
    Registrations nets{saver};
    const Buffer<char> comes{saver.arena("comes", HostBackup{.threads = 1}), 40_MiB};
    Registration second = nets.add(comes.data(), comes.size(), card.of("comes"));
    saver.pause("comes");
    const Buffer<char> goes{saver.arena("goes", HostBackup{.threads = 1}, ArenaOptions{.evictable = true}), 40_MiB};
    Registration first = nets.add(goes.data(), goes.size(), card.of("goes"));
    std::string told;
    const Hook gone = saver.after_pause([&](PauseEvent&) { told += "gone "; });
    const Hook stayed = saver.after_failed_pause([&](PauseEvent&) { told += "stayed "; });
    const Hook came = saver.after_resume([&](ResumeEvent&) { told += "came "; });
    driver.fail({.call = saving ? Call::copy_to_host : Call::unmap});
    CHECK_THROWS_AS((void)saver.use("comes"), DriverError);
    CHECK(told == (saving ? "stayed " : "gone came "));
    CHECK((first.registered() == saving && second.registered() == !saving));
    driver.heal();
    (void)saver.use("comes");
    CHECK((!first.registered() && second.registered()));
}

TEST_CASE_FIXTURE(Nets, "registrations: an eviction that another pause forestalls leaves them as after any pause") {
    const Buffer<char> a{saver.arena("a", HostBackup{}, ArenaOptions{.evictable = true}), 2_MiB};
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    bool once = true;
    const Hook forestalling = saver.before_pause([&](PauseEvent&) {
        if (std::exchange(once, false)) std::thread{[&] { saver.pause("a"); }}.join();
    });
    CHECK(saver.reclaim(2_MiB).evicted_bytes == 0);
    CHECK_FALSE(first.registered());
    saver.resume("a");
    CHECK(first.registered());
    CHECK(card.taken() == Calls{"+a", "-a", "+a"});
    Registration second = nets.add(a.data(), 256, card.of("b"));
}

TEST_CASE_FIXTURE(Nets, "registrations: misuse") {
    const Buffer<char> a{saver.arena("net", HostBackup{}), 2_MiB};
    char elsewhere = 0;
    CHECK_THROWS_AS((void)nets.add(&elsewhere, 1, card.of("x")), Misuse);
    CHECK_THROWS_AS((void)nets.add(a.data(), 0, card.of("x")), Misuse);
    CHECK_THROWS_AS((void)nets.add(a.data(), 2_MiB + 1, card.of("x")), Misuse);
    CHECK_THROWS_AS((void)nets.add(a.data(), 256, {.who = "x", .on_pause = OnPause::renew}), Misuse);
    CHECK_THROWS_AS((void)nets.add(a.data(), 256, {.who = "x", .on_register = [] {}}), Misuse);
    CHECK_THROWS_AS((void)nets.add(Tags{"net"}, {.who = "x"}), Misuse);
    const Registration none;
    CHECK_THROWS_AS((void)nets.add(a.data(), 256, card.of("x"), &none), Misuse);
    card.fails = "+x";
    CHECK_THROWS_AS((void)nets.add(a.data(), 256, card.of("x")), std::runtime_error);
    saver.pause(); // it was not registered
    check_says<Misuse>("resume it first", [&] { (void)nets.add(a.data(), 256, card.of("x")); });
    saver.resume();
    const Hook late = saver.before_pause([&](PauseEvent&) { // runs after the registrations
        CHECK_THROWS_AS((void)nets.add(a.data(), 256, card.of("x")), Misuse);
    });
    pause_and_resume(saver);
    Registration fine = nets.add(a.data(), 256, card.of("y"));
}

TEST_CASE_FIXTURE(OnTold, "registrations: functions may add and end registrations; failures at an end are reported") {
    Registrations nets{saver};
    Card card;
    const Buffer<char> a{saver.arena("net", HostBackup{}), 2_MiB};
    std::optional<Registration> inner;
    RegistrationOptions options = card.of("outer");
    options.on_register = [&] { inner.emplace(nets.add(a.data(), 256, card.of("inner"))); };
    options.on_deregister = [&] { inner.reset(); };
    Registration outer = nets.add(a.data(), 512, std::move(options));
    CHECK(card.taken() == Calls{"+inner"});
    saver.pause();
    CHECK(card.taken() == Calls{"-inner"});
    saver.resume();
    CHECK(card.taken() == Calls{"+inner"});
    {
        Registration failing = nets.add(a.data(), 256, card.of("z"));
        card.fails = "-z";
        CHECK_THROWS_AS(failing.end(), std::runtime_error);
        CHECK(failing.registered());
        card.fails = "-z";
    }
    CHECK(told.texts() == Calls{"no -z"});
    pause_and_resume(saver); // it has been removed
}

TEST_CASE_FIXTURE(OnMachine, "registrations: switched off, after close, in a forked child, and outliving the saver") {
    Card card;
    {
        MemorySaver off{machine.driver, {.enabled = false}};
        Registrations nets{off};
        const Buffer<char> a{off.arena("net"), 2_MiB};
        Registration plain = nets.add(a.data(), a.size(), card.of("a"));
        off.pause();
        CHECK(card.taken() == Calls{"+a"});
        off.resume();
        CHECK(card.taken().empty());
    }
    CHECK(card.taken() == Calls{"-a"});
    std::optional<Registration> outliving;
    {
        MemorySaver saver{machine.driver};
        Registrations nets{saver};
        const Buffer<char> a{saver.arena("net"), 2_MiB};
        outliving.emplace(nets.add(a.data(), a.size(), card.of("b")));
        CHECK(within_seconds(20, [&] {
            outliving.reset(); // the parent's: no call
            return card.calls == Calls{"+b"};
        }));
        saver.close();
        CHECK_THROWS_AS((Registrations{saver}), Misuse);
    }
    outliving.reset();
    CHECK(card.taken() == Calls{"+b", "-b"});
}

TEST_CASE_FIXTURE(Nets, "registrations: threads that add, end, pause and resume") {
    const Buffer<char> a{saver.arena("net", HostBackup{}), 2_MiB};
    int registered = 0; // guarded by the registrations' lock
    const RegistrationOptions options{.who = "thread",
                                      .on_pause = OnPause::renew,
                                      .on_register = [&] { registered += 1; },
                                      .on_deregister = [&] { registered -= 1; }};
    Threads threads{3, [&](std::size_t) {
                        for (int i = 0; i < 200; ++i) {
                            try {
                                const Registration one = nets.add(a.data(), 256, options);
                            } catch (const Misuse&) { // it is paused
                            }
                        }
                    }};
    const Hook none = saver.after_pause([&](PauseEvent&) { CHECK(registered == 0); });
    for (int i = 0; i < 100; ++i) pause_and_resume(saver);
    threads.join();
    CHECK(registered == 0);
}

TEST_CASE("registrations: a device on which none of the tags lives is not waited for, nor a lost one") {
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{HostDriver{64_MiB}};
    Card card;
    Registrations nets{saver};
    const Registration one = nets.add(saver.arena("a").allocate(4_MiB), 1_MiB, card.of("a"));
    (void)saver.arena("b", Discard{}, AnyDriver{second});
    second.lose();
    (void)saver.pause("a");
    CHECK(card.taken() == Calls{"+a", "-a"});
    (void)saver.resume("a");
    CHECK(one.registered());
}
} // namespace saver_registrations_test
