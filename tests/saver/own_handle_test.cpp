// Functions of the program that end the object that calls them, and hooks that change their event.
#include "support/machines.hpp"

#include "memsaver/saver/registrations.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace saver_own_handle_test {

using namespace test;

namespace {

using D = MachineDriver;

} // namespace

TEST_CASE("own handle: a registration that ends itself in its function is called once, and ends") {
    enum class By { pause, end, destructor, renew };
    enum class How { end, assign, destroy };
    for (const By by : {By::pause, By::end, By::destructor, By::renew}) {
        for (const How how : {How::end, How::assign, How::destroy}) {
            for (const bool throws : {false, true}) {
                CAPTURE(static_cast<int>(by));
                CAPTURE(static_cast<int>(how));
                CAPTURE(throws);
                MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
                const Arena a = saver.arena("a", HostBackup{.threads = 1});
                void* const block = a.allocate(1_MiB);
                auto regs = std::make_unique<Registrations>(saver);
                std::optional<Registration> own;
                Registration* at = nullptr; // in `own`, also while that is being destroyed
                int registered = 0;
                int deregistered = 0;
                int depth = 0;
                bool ends = by != By::renew;
                const auto end_itself = [&] {
                    REQUIRE(++depth < 3);
                    if (ends && how == How::end) at->end();
                    if (ends && how == How::assign) *at = Registration{};
                    if (ends && how == How::destroy) own.reset();
                    --depth;
                };
                own = regs->add(block, 4096,
                                {.who = "card",
                                 .on_pause = OnPause::renew,
                                 .on_register =
                                     [&] {
                                         if (++registered == 2) end_itself();
                                         if (registered == 2 && throws) throw std::runtime_error{"no card"};
                                     },
                                 .on_deregister =
                                     [&] {
                                         ++deregistered;
                                         if (by != By::renew) end_itself();
                                         if (by != By::renew && throws) throw std::runtime_error{"no card"};
                                     }});
                at = &*own;
                const auto act = [&] {
                    if (by == By::pause) (void)saver.pause("a");
                    if (by == By::end) own->end();
                    if (by == By::destructor) own.reset();
                    if (by == By::renew) {
                        (void)saver.pause("a");
                        ends = true;
                        (void)saver.resume("a");
                    }
                };
                if (throws && by != By::destructor) {
                    CHECK_THROWS_AS(act(), std::runtime_error);
                } else {
                    act();
                }
                // One that was registered anew while it ended is deregistered.
                CHECK(deregistered == (by == By::renew && !throws ? 2 : 1));
                if (own) CHECK_FALSE(own->registered());
                own.reset();
                const int before = deregistered;
                (void)saver.pause("a"); // it has ended: not called again, and no pause is in progress for it
                (void)saver.resume("a");
                CHECK(deregistered == before);
                CHECK(registered <= 2);
            }
        }
    }
}

TEST_CASE("own handle: a registration may renew all from its own function") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    void* const block = saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
    Registrations regs{saver};
    int calls = 0;
    const Registration own = regs.add(block, 4096,
                                      {.who = "card",
                                       .on_pause = OnPause::renew,
                                       .on_register =
                                           [&] {
                                               REQUIRE(++calls < 10);
                                               regs.renew();
                                           },
                                       .on_deregister = [] {}});
    (void)saver.pause("a");
    (void)saver.resume("a");
    CHECK(calls == 2);
    CHECK(own.registered());
}

TEST_CASE("own handle: a registration that another one needs ends itself while both are renewed") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    void* const block = saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
    Registrations regs{saver};
    bool ends = false;
    Registration first = regs.add(block, 4096,
                                  {.who = "card",
                                   .on_pause = OnPause::renew,
                                   .on_register =
                                       [&] {
                                           if (ends) first.end();
                                       },
                                   .on_deregister = [] {}});
    const RegistrationOptions card{
        .who = "card", .on_pause = OnPause::renew, .on_register = [] {}, .on_deregister = [] {}};
    const Registration second = regs.add(block, 4096, card, &first);
    (void)saver.pause("a");
    ends = true;
    (void)saver.resume("a");
    CHECK_FALSE(first.registered());
    CHECK(second.registered());
}

TEST_CASE("own handle: a registration's function puts another one in its place while it ends") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    void* const block = saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
    Registrations regs{saver};
    int ended = 0;
    Registration own;
    const RegistrationOptions card{.who = "card",
                                   .on_pause = OnPause::renew,
                                   .on_register = [] {},
                                   .on_deregister =
                                       [&] {
                                           if (++ended == 1) own = regs.add(block, 4096, card);
                                       }};
    own = regs.add(block, 4096, card);
    own.end();
    CHECK(own.registered());
    own.end();
    CHECK(ended == 2);
}

TEST_CASE("own handle: a hook may end itself, of each kind") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    (void)saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
    std::optional<Hook> hooks[5];
    int calls[5] = {};
    const auto of = [&](int which) {
        return [&, which, owned = std::make_shared<int>(which)](auto&) {
            ++calls[which];
            hooks[which].reset();
            CHECK(*owned == which); // what the function owns lives until it returns
        };
    };
    hooks[0] = saver.before_pause(of(0));
    hooks[1] = saver.after_pause(of(1));
    hooks[2] = saver.before_resume(of(2));
    hooks[3] = saver.after_resume(of(3));
    hooks[4] = saver.after_failed_pause(of(4));
    for (int i = 0; i < 2; ++i) {
        (void)saver.pause("a");
        (void)saver.resume("a");
    }
    {
        const Hook failing = saver.before_pause([](PauseEvent&) { throw std::runtime_error{"no"}; });
        for (int i = 0; i < 2; ++i) CHECK_THROWS_AS((void)saver.pause("a"), std::runtime_error);
    }
    for (const int each : calls) CHECK(each == 1);
}

TEST_CASE("own handle: an after_resume hook may end the arrival that runs it") {
    for (int how = 0; how < 3; ++how) {
        CAPTURE(how);
        MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
        (void)saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
        (void)saver.pause("a");
        std::optional<Arrival> own;
        int calls = 0;
        const Hook hook = saver.after_resume([&](ResumeEvent&) {
            ++calls;
            own.reset();
        });
        own = saver.resume_async("a");
        if (how == 0) own->wait();
        if (how == 1) CHECK(own->report().tags.size() == 1);
        if (how == 2) own.reset();
        CHECK(calls == 1);
    }
}

TEST_CASE("own handle: hooks see copies of the event, whatever others do to theirs") {
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    const Arena a = saver.arena("a", HostBackup{.threads = 1});
    const Arena b = saver.arena("b", HostBackup{.threads = 1});
    (void)a.allocate(1_MiB);
    (void)b.allocate(1_MiB);
    const std::vector<std::string> both{"a", "b"};
    std::vector<std::pair<std::string, std::vector<std::string>>> seen;
    std::vector<Hook> hooks;
    const auto spoil = [](auto& event) {
        if (!event.tags.empty()) event.tags.pop_back();
        event.tags.push_back("nonsense");
        event.report = Report{};
    };
    const auto look = [&](const char* name, bool reports) {
        return [&seen, name, reports](auto& event) {
            seen.emplace_back(name, event.tags);
            CHECK(event.report.tags.empty() != reports);
        };
    };
    hooks.push_back(saver.before_pause(spoil));
    hooks.push_back(saver.before_pause(look("before_pause", false)));
    hooks.push_back(saver.after_pause(spoil));
    hooks.push_back(saver.after_pause(look("after_pause", true)));
    hooks.push_back(saver.before_resume(spoil));
    hooks.push_back(saver.before_resume(look("before_resume", false)));
    hooks.push_back(saver.after_resume(spoil));
    hooks.push_back(saver.after_resume(look("after_resume", true)));
    hooks.push_back(saver.after_failed_pause(spoil));
    hooks.push_back(saver.after_failed_pause(look("after_failed_pause", false)));
    const auto told = [&](std::vector<std::string> names) {
        REQUIRE(seen.size() == names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            CHECK(seen[i].first == names[i]);
            CHECK(seen[i].second == both);
        }
        seen.clear();
    };
    CHECK(saver.pause().released_bytes != 0);
    told({"before_pause", "after_pause"});
    CHECK(saver.resume().mapped_bytes != 0);
    told({"before_resume", "after_resume"});
    (void)saver.pause();
    seen.clear();
    {
        const Arrival arrival = saver.resume_async();
        arrival.wait();
        CHECK(arrival.report().mapped_bytes != 0);
        told({"before_resume", "after_resume"});
        CHECK(b.usage().paused_bytes == 0);
        CHECK(a.usage().paused_bytes == 0);
    }
    (void)saver.arena("c", HostBackup{.threads = 1}).allocate(1_MiB);
    (void)saver.pause("c");
    seen.clear();
    CHECK(saver.exchange({"a", "b"}, "c").mapped_bytes + 1 != 0);
    CHECK(seen.size() == 4);
    CHECK(seen[0].second == both);
    CHECK(seen[2].second == both);
    seen.clear();
    {
        (void)saver.resume({"a", "b"});
        seen.clear();
        const Hook failing = saver.before_pause([](PauseEvent&) { throw std::runtime_error{"no"}; });
        CHECK_THROWS_AS((void)saver.pause({"a", "b"}), std::runtime_error);
        told({"before_pause", "after_failed_pause"});
    }
}

TEST_CASE(
    "own handle: changes that hooks of an eviction make to their event affect neither the eviction nor the resume") {
    const D driver{HostDriver{16_MiB, {.granularity = 64_KiB}}};
    MemorySaver<D> saver{driver};
    const Arena a = saver.arena("a", HostBackup{.threads = 1});
    const Arena b = saver.arena("b", HostBackup{.threads = 1});
    (void)a.allocate(10_MiB);
    { const Use first = saver.use("a"); }
    (void)saver.pause("a");
    (void)b.allocate(10_MiB);
    { const Use first = saver.use("b"); }
    std::vector<std::string> told;
    const auto spoil = [](auto& event) { event.tags.assign(1, "nonsense"); };
    const auto look = [&](auto& event) { told.insert(told.end(), event.tags.begin(), event.tags.end()); };
    const Hook one = saver.before_pause(spoil);
    const Hook two = saver.before_pause(look);
    const Hook three = saver.after_pause(spoil);
    const Hook four = saver.after_pause(look);
    const Hook five = saver.before_resume(spoil);
    const Hook six = saver.before_resume(look);
    const Hook seven = saver.after_resume(spoil);
    const Hook eight = saver.after_resume(look);
    const Use use = saver.use("a");
    CHECK(a.usage().paused_bytes == 0);
    CHECK(std::count(told.begin(), told.end(), "b") == 2);
    CHECK(std::count(told.begin(), told.end(), "a") == 2);
    CHECK(told.size() == 4);
}

} // namespace saver_own_handle_test
