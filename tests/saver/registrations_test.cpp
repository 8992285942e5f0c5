// Registered memory: what a pause refuses, what it deregisters and registers again, and the state after failures.
#include "support/machines.hpp"

namespace saver_registrations_test {
using namespace test;

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

using Calls = std::vector<std::string>;

struct Nets : OnSaver {
    Card card{};
    Registrations nets{saver};
};

TEST_CASE_FIXTURE(OnSaver, "registrations: a pause of registered memory is refused, by name" * on_machines) {
    Registrations nets{saver};
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
        CHECK(contains(text_of<Misuse>([&] { saver.pause("net"); }), "1 more"));
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
    const Buffer<char> a{saver.arena("net", HostBackup{}), 2_MiB};
    const Buffer<char> b{saver.arena("net"), 2_MiB};
    const Buffer<char> far{saver.arena("far"), 2_MiB};
    write_pattern(machine.driver, a.data(), a.size(), 1);
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
        CHECK(has_pattern(machine.driver, a.data(), a.size(), 1));
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

TEST_CASE_FIXTURE(OnSaver, "registrations: a pause that fails leaves all registered that is here" * on_machines) {
    Card card;
    Registrations nets{saver, {.barrier = [&](const PauseEvent&) { card.call("barrier"); }}};
    const Buffer<char> a{saver.arena("net", HostBackup{}), 2_MiB};
    const Buffer<char> b{saver.arena("more", HostBackup{}), 2_MiB};
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    Registration second = nets.add(b.data(), b.size(), card.of("b"));
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
    CHECK(first.registered());
    CHECK(second.registered());
    CHECK(machine.driver.handle_bytes() == 4_MiB);
    (void)card.taken();
    saver.pause();
    CHECK(card.taken() == Calls{"barrier", "-b", "-a"});
    CHECK(machine.driver.handle_bytes() == 0);
    saver.resume();
}

TEST_CASE_FIXTURE(Nets, "registrations: a failure to register again is reported, and retried" * on_machines) {
    const Buffer<char> a{saver.arena("net", HostBackup{}), 2_MiB};
    write_pattern(machine.driver, a.data(), a.size(), 9);
    Registration first = nets.add(a.data(), 1_MiB, card.of("a"));
    Registration second = nets.add(a.data() + 1_MiB, 1_MiB, card.of("b"));
    saver.pause();
    (void)card.taken();
    nets.renew(); // nothing is resident
    CHECK(card.taken().empty());
    card.fails = "+a";
    CHECK_THROWS_WITH_AS(saver.resume(), "no +a", std::runtime_error);
    CHECK(card.taken() == Calls{"+a", "+b"});
    CHECK(has_pattern(machine.driver, a.data(), a.size(), 9)); // the resume remains in effect
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
    {
        Arrival coming = saver.resume_async("a");
        coming.wait();
    }
    CHECK(card.taken() == Calls{"+a", "+comm"});
    Registration refusing = nets.add(a.data(), 256, {.who = "peer"});
    CHECK(saver.reclaim(2_MiB).evicted_bytes == 0); // skipped and unchanged
    CHECK(first.registered());
    CHECK(card.taken().empty());
}

TEST_CASE_FIXTURE(OnSaver, "registrations: memory resumed before the hooks of its pause is registered after them") {
    Card card;
    std::atomic<bool> paused{false};
    std::atomic<bool> resumed{false};
    const Hook slow = saver.after_pause([&](PauseEvent&) {
        paused = true;
        while (!resumed) std::this_thread::yield();
    });
    Registrations nets{saver};
    const Buffer<char> a{saver.arena("a", HostBackup{}), 2_MiB};
    Registration all = nets.add(Tags::all(), card.of("comm"));
    Registration first = nets.add(a.data(), a.size(), card.of("a"));
    std::thread other{[&] { saver.pause("a"); }};
    while (!paused) std::this_thread::yield();
    saver.resume("a");
    resumed = true;
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
    for (const bool saving : {true, false}) {
        CAPTURE(saving);
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
        CHECK(first.registered() == saving);
        CHECK(second.registered() == !saving);
        driver.heal();
        { const Use use = saver.use("comes"); }
        CHECK_FALSE(first.registered());
        CHECK(second.registered());
    }
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
    CHECK(contains(text_of<Misuse>([&] { (void)nets.add(a.data(), 256, card.of("x")); }), "resume it first"));
    saver.resume();
    const Hook late = saver.before_pause([&](PauseEvent&) { // runs after the registrations
        CHECK_THROWS_AS((void)nets.add(a.data(), 256, card.of("x")), Misuse);
    });
    pause_and_resume(saver);
    Registration fine = nets.add(a.data(), 256, card.of("y"));
}

TEST_CASE_FIXTURE(OnHost, "registrations: functions may add and end registrations; failures at an end are reported") {
    std::vector<std::string> told;
    MemorySaver saver{machine.driver, {.events = [&](const Event& event) {
                          if (event.kind == EventKind::ignored) told.push_back(event.text);
                      }}};
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
    CHECK(told == Calls{"no -z"});
    saver.pause(); // it has been removed
    saver.resume();
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
        const pid_t child = ::fork();
        if (child == 0) {
            outliving.reset(); // the parent's: no call
            ::_exit(card.calls == Calls{"+b"} ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        CHECK(status == 0);
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
    const HostDriver first{64_MiB};
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{first};
    Registrations all{saver};
    void* const block = saver.arena("a").allocate(4_MiB);
    bool registered = false;
    const Registration one = all.add(block, 1_MiB,
                                     {.who = "network card",
                                      .on_pause = OnPause::renew,
                                      .on_register = [&] { registered = true; },
                                      .on_deregister = [&] { registered = false; }});
    (void)saver.arena("b", Discard{}, AnyDriver{second});
    second.lose();
    (void)saver.pause("a");
    CHECK(!registered);
    (void)saver.resume("a");
    CHECK(registered);
}
} // namespace saver_registrations_test
