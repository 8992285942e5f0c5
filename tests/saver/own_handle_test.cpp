// Functions of the program that end the object that calls them, and hooks that change their event.
#include "support/each_of.hpp"

namespace saver_own_handle_test {
using namespace test;

RegistrationOptions card(
    std::function<void()> on_register, std::function<void()> on_deregister = [] {}) {
    return {.who = "card",
            .on_pause = OnPause::renew,
            .on_register = std::move(on_register),
            .on_deregister = std::move(on_deregister)};
}

/// A saver with registrations, and a block to register.
struct OfACard {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    void* block = saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
    Registrations regs{saver};
    void cycle() { pause_and_resume(saver, "a"); }
};

TEST_CASE_FIXTURE(OfACard, "own handle: a registration that ends itself in its function is called once, and ends") {
    const std::string by = each_of<std::string>({"pause", "end", "destructor", "renew"});
    const bool renewed = by == "renew";
    for (const std::string how : {"end", "assign", "destroy", "end, throws", "assign, throws", "destroy, throws"}) {
        CAPTURE(how);
        const bool throws = contains(how, "throws");
        std::optional<Registration> own;
        Registration* at = nullptr; // in `own`, also while that is being destroyed
        int registered = 0;
        int deregistered = 0;
        int depth = 0;
        bool ends = !renewed;
        const auto end_itself = [&] {
            REQUIRE(++depth < 3);
            if (ends && how.starts_with("end")) at->end();
            if (ends && how.starts_with("assign")) *at = Registration{};
            if (ends && how.starts_with("destroy")) own.reset();
            --depth;
            if (throws) throw std::runtime_error{"no card"};
        };
        const auto on_register = [&] {
            if (++registered == 2) end_itself();
        };
        const auto on_deregister = [&] {
            ++deregistered;
            if (!renewed) end_itself();
        };
        own = regs.add(block, 4096, card(on_register, on_deregister));
        at = &*own;
        const auto act = [&] {
            if (by == "end") own->end();
            if (by == "destructor") own.reset();
            if (by == "pause" || renewed) (void)saver.pause("a");
            ends = true;
            if (renewed) (void)saver.resume("a");
        };
        if (throws && by != "destructor") CHECK_THROWS_AS(act(), std::runtime_error);
        if (!throws || by == "destructor") act();
        // One that was registered anew while it ended is deregistered.
        CHECK(deregistered == (renewed && !throws ? 2 : 1));
        if (own) CHECK_FALSE(own->registered());
        own.reset();
        const int before = deregistered;
        cycle(); // it has ended: not called again, and no pause is in progress for it
        CHECK(deregistered == before);
        CHECK(registered <= 2);
    }
}

TEST_CASE_FIXTURE(OfACard, "own handle: a registration that another one needs ends itself while both are renewed") {
    bool ends = false;
    Registration first = regs.add(block, 4096, card([&] {
                                      if (ends) first.end();
                                  }));
    const Registration second = regs.add(block, 4096, card([] {}), &first);
    (void)saver.pause("a");
    ends = true;
    (void)saver.resume("a");
    CHECK_FALSE(first.registered());
    CHECK(second.registered());
}

TEST_CASE("own handle: a hook may end itself, of each kind") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    (void)saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
    std::optional<Hook> hooks[5];
    int calls[5] = {};
    std::optional<Hook> born; // while hooks run: it runs from the next operation on
    int after_birth = 0;
    const auto of = [&](int which) {
        return [&, which, owned = std::make_shared<int>(which)](auto&) {
            ++calls[which];
            hooks[which].reset();
            if (which == 0) born = saver.before_pause([&](PauseEvent&) { ++after_birth; });
            CHECK(*owned == which); // what the function owns lives until it returns
        };
    };
    hooks[0] = saver.before_pause(of(0));
    hooks[1] = saver.after_pause(of(1));
    hooks[2] = saver.before_resume(of(2));
    hooks[3] = saver.after_resume(of(3));
    hooks[4] = saver.after_failed_pause(of(4));
    for (int i = 0; i < 2; ++i) {
        pause_and_resume(saver, "a");
        CHECK(after_birth == i);
    }
    {
        const Hook failing = saver.before_pause([](PauseEvent&) { throw std::runtime_error{"no"}; });
        for (int i = 0; i < 2; ++i) CHECK_THROWS_AS((void)saver.pause("a"), std::runtime_error);
    }
    for (const int each : calls) CHECK(each == 1);
}

TEST_CASE_FIXTURE(OfACard, "own handle: an after_resume hook may end the arrival that runs it") {
    const std::string how = each_of<std::string>({"wait", "report", "destructor"});
    (void)saver.pause("a");
    std::optional<Arrival> own;
    int calls = 0;
    const Hook hook = saver.after_resume([&](ResumeEvent&) {
        ++calls;
        own.reset();
    });
    own = saver.resume_async("a");
    if (how == "wait") own->wait();
    if (how == "report") CHECK(own->report().tags.size() == 1);
    if (how == "destructor") own.reset();
    CHECK(calls == 1);
}

TEST_CASE("own handle: hooks see copies of the event, whatever others do to theirs") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    for (const char* tag : {"a", "b", "c"}) (void)saver.arena(tag, HostBackup{.threads = 1}).allocate(1_MiB);
    const Tags ab{"a", "b"};
    std::string seen;
    const auto spoil = [](auto& event) {
        event.tags.assign(1, "nonsense");
        event.report = Report{};
    };
    const auto look = [&seen](const char* name, bool reports) {
        return [&seen, name, reports](auto& event) {
            seen += name;
            for (const std::string& tag : event.tags) seen += tag;
            seen += ' ';
            CHECK(event.report.tags.empty() != reports);
        };
    };
    const Hook hooks[] = {
        saver.before_pause(spoil),       saver.before_pause(look("pausing:", false)),
        saver.after_pause(spoil),        saver.after_pause(look("paused:", true)),
        saver.before_resume(spoil),      saver.before_resume(look("resuming:", false)),
        saver.after_resume(spoil),       saver.after_resume(look("resumed:", true)),
        saver.after_failed_pause(spoil), saver.after_failed_pause(look("failed:", false)),
    };
    const auto taken = [&] { return std::exchange(seen, {}); };
    CHECK(saver.pause(ab).released_bytes != 0);
    CHECK(taken() == "pausing:ab paused:ab ");
    CHECK(saver.resume(ab).mapped_bytes != 0);
    CHECK(taken() == "resuming:ab resumed:ab ");
    (void)saver.pause(ab);
    CHECK(saver.resume_async(ab).report().mapped_bytes != 0);
    CHECK(taken() == "pausing:ab paused:ab resuming:ab resumed:ab ");
    (void)saver.pause("c");
    seen.clear();
    (void)saver.exchange(ab, "c");
    CHECK(taken() == "pausing:ab resuming:c paused:ab resumed:c ");
    (void)saver.resume(ab);
    seen.clear();
    const Hook failing = saver.before_pause([](PauseEvent&) { throw std::runtime_error{"no"}; });
    CHECK_THROWS_AS((void)saver.pause(ab), std::runtime_error);
    CHECK(taken() == "pausing:ab failed:ab ");
}
} // namespace saver_own_handle_test
