// Hooks: their order, their exceptions, and the calls they may make.
#include "support/machines.hpp"

namespace saver_hooks_test {
using namespace test;

TEST_CASE_FIXTURE(OnMachine, "a hook ends with its handle, which another hook may own" * on_machines) {
    int runs = 0;
    std::optional<Hook> late;
    {
        MemorySaver saver{machine.driver};
        (void)saver.arena("tag");
        Hook hook = saver.before_pause([&](PauseEvent&) { ++runs; });
        Hook moved{std::move(hook)};
        Hook& same = moved;
        moved = std::move(same); // keeps its value
        (void)saver.pause();
        CHECK(runs == 1);
        moved = Hook{};
        (void)saver.pause();
        CHECK(runs == 1);
        {
            const Hook scoped = saver.before_pause([&](PauseEvent&) { ++runs; });
            (void)saver.pause();
        }
        (void)saver.pause();
        CHECK(runs == 2);
        auto inner = std::make_shared<Hook>(saver.after_pause([&](PauseEvent&) { ++runs; }));
        Hook outer = saver.after_pause([inner](PauseEvent&) {}); // owns the other one, which ends with it
        inner.reset();
        for (int i = 0; i < 2; ++i) {
            (void)saver.pause();
            CHECK(runs == 3);
            outer = Hook{};
        }
        late = saver.after_pause([&](PauseEvent&) { ++runs; });
        CHECK_THROWS_AS((void)saver.after_pause({}), Misuse);
        CHECK_THROWS_AS((void)saver.before_resume({}), Misuse);
    }
    late.reset(); // after its saver: a no-op
}

TEST_CASE_FIXTURE(OnTold,
                  "after_failed_pause runs if a pause fails or does not take place, and only then" * on_machines) {
    const Buffer<char> a{saver.arena("a", HostBackup{}, ArenaOptions{.evictable = true}), 2_MiB};
    const Buffer<char> b{saver.arena("b", HostBackup{}), 2_MiB};
    std::vector<std::string> failed;
    const Hook undo = saver.after_failed_pause([&](PauseEvent& event) {
        CHECK_THROWS_AS(saver.pause(event.tags), Misuse); // the same rules as for other hooks
        for (const std::string& tag : event.tags) failed.push_back(tag);
        throw std::runtime_error{"not even this"};
    });
    const auto taken = [&] { return std::exchange(failed, {}); };
    const auto cannot_save = [&](const std::function<void()>& act) {
        machine.driver.fail({.call = Call::copy_to_host, .lasting = Lasting::onwards});
        CHECK_THROWS_AS(act(), Error);
        machine.driver.heal();
    };
    using Names = std::vector<std::string>;

    pause_and_resume(saver);
    CHECK(taken().empty());
    cannot_save([&] { saver.pause("b"); });
    CHECK(taken() == Names{"b"});
    CHECK(told.texts() == Names{"not even this"}); // the failure itself is reported to the program
    {
        const Hook no = saver.before_pause([](PauseEvent&) { throw std::runtime_error{"no"}; });
        CHECK_THROWS_WITH_AS(saver.pause({"a", "b"}), "no", std::runtime_error);
        CHECK(taken() == Names{"a", "b"});
        CHECK(saver.reclaim(2_MiB).evicted_bytes == 0); // skips the eviction
        CHECK(taken() == Names{"a"});
    }
    saver.pause("b");
    cannot_save([&] { saver.exchange("a", "b"); });
    CHECK(taken() == Names{"a"});
    saver.resume();
    CHECK(saver.reclaim(2_MiB).evicted_bytes == 2_MiB);
    CHECK(taken().empty());
    saver.resume();
    saver.close();
    CHECK_THROWS_AS((void)saver.after_failed_pause([](PauseEvent&) {}), Misuse);
}

TEST_CASE_FIXTURE(OnSaver, "after-hooks all run, then the first exception is thrown, the state remains" * on_machines) {
    (void)saver.arena("tag").allocate(2_MiB);
    std::vector<int> ran;
    const auto note = [&](int number) {
        return [&ran, number](PauseEvent&) {
            ran.push_back(number);
            if (number == 1) throw std::runtime_error{"first"};
            if (number == 2) throw std::logic_error{"second"};
        };
    };
    const Hook hooks[] = {saver.after_pause(note(1)), saver.after_pause(note(2)), saver.after_pause(note(3))};
    CHECK_THROWS_WITH_AS((void)saver.pause(), "first", std::runtime_error);
    CHECK(ran == std::vector<int>{1, 2, 3});
    CHECK(row_of(saver, "tag").state == "paused");
    CHECK(machine.driver.handle_bytes() == 0);
    const Hook last = saver.after_resume([&](ResumeEvent&) { throw 1; });
    CHECK_THROWS_AS((void)saver.resume(), int);
    CHECK(row_of(saver, "tag").state == "active");
}

TEST_CASE_FIXTURE(OnSaver, "an after-hook without host memory: the exception says what was done before" * on_machines) {
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("other").allocate(2_MiB);
    const auto rows_of = [&](auto&& operate) { return thrown<OutOfHostMemory>(operate).report().tags.size(); };
    const Hook one = saver.after_pause([](PauseEvent&) { throw std::bad_alloc{}; });
    const Hook two = saver.after_resume([](ResumeEvent&) { throw std::bad_alloc{}; });
    CHECK(rows_of([&] { (void)saver.pause("tag"); }) == 1);
    CHECK(rows_of([&] { (void)saver.exchange("other", "tag"); }) == 2);
    CHECK(rows_of([&] { (void)saver.resume("other"); }) == 1);
    CHECK(rows_of([&] { (void)saver.pause(); }) == 2);
    CHECK(rows_of([&] { (void)saver.resume_async().wait(); }) == 2);
    CHECK(row_of(saver, "tag").state == "active");
}

TEST_CASE_FIXTURE(OnSaver, "hooks may allocate, free and trim, but not move their own tags or close" * on_machines) {
    const Arena arena = saver.arena("tag");
    void* block = arena.allocate(2_MiB);
    void* made = nullptr;
    int ran = 0;
    const auto try_all = [&] {
        ++ran;
        check_says<Misuse>("pause of every tag inside a hook", [&] { (void)saver.pause(); });
        check_says<Misuse>("resume of tags \"a\", \"tag\" inside a hook", [&] { (void)saver.resume({"a", "tag"}); });
        check_says<Misuse>("drop of tag \"tag\" inside a hook", [&] { saver.drop("tag"); });
        check_says<Misuse>("close of every tag inside a hook", [&] { saver.close(); });
        CHECK(thrown<Misuse>([&] { (void)saver.resume("tag"); }).tag() == "tag");
        CHECK_THROWS_AS((void)saver.use("tag"), Misuse);
        CHECK_THROWS_AS((void)saver.reclaim(1), Misuse);
        (void)saver.trim();
        (void)saver.usage();
        (void)saver.bytes_to_resume();
        saver.deallocate(saver.arena("other").allocate(1_MiB));
    };
    const Hook one = saver.before_pause([&](PauseEvent&) {
        try_all();
        arena.deallocate(std::exchange(block, nullptr));
        if (made == nullptr) made = arena.allocate(4_MiB);
    });
    const Hook two = saver.after_pause([&](PauseEvent&) { try_all(); });
    const Hook three = saver.before_resume([&](ResumeEvent&) { try_all(); });
    const Hook four = saver.after_resume([&](ResumeEvent&) { try_all(); });
    (void)saver.pause("tag");
    CHECK(row_of(saver, "tag").used_bytes == 4_MiB);
    CHECK(row_of(saver, "tag").state == "paused");
    (void)saver.resume("tag");
    CHECK(ran == 4);
    (void)saver.pause(); // no hook is running: allowed again
    arena.deallocate(made);
}

TEST_CASE_FIXTURE(OnMachine,
                  "a hook may prepare its tags, and pause and resume others and another saver" * on_machines) {
    MemorySaver saver{machine.driver, {.default_policy = HostBackup{.threads = 1}}};
    for (const char* tag : {"weights", "cache", "spare"}) (void)saver.arena(tag).allocate(1_MiB);
    MemorySaver other{machine.driver};
    (void)other.arena("weights").allocate(1_MiB);
    std::vector<std::string> order;
    const Hook before = saver.before_pause([&](const PauseEvent& event) {
        order.push_back(event.tags.front());
        if (event.tags.front() != "weights") return;
        saver.prepare("weights");
        saver.invalidate("weights");
        (void)saver.pause("cache");
        (void)other.pause();
    });
    const Hook after = saver.after_resume([&](const ResumeEvent& event) {
        if (event.tags.front() == "weights") (void)saver.exchange("spare", "cache");
    });
    (void)saver.pause("weights");
    CHECK(order == std::vector<std::string>{"weights", "cache"});
    CHECK(row_of(saver, "cache").state == "paused");
    CHECK(row_of(other, "weights").state == "paused");
    (void)saver.resume("weights");
    CHECK(row_of(saver, "cache").state == "active");
    CHECK(row_of(saver, "spare").state == "paused");
}

TEST_CASE_FIXTURE(OnMachine, "tags that are made while hooks run are left to the next operation" * on_machines) {
    MemorySaver saver{machine.driver, {.default_policy = HostBackup{.threads = 1}}};
    void* const first = saver.arena("first").allocate(1_MiB);
    saver.pause();
    void* const second = saver.arena("second").allocate(1_MiB);
    const auto make = [&](const char* tag) { return saver.arena(tag).allocate(1_MiB); };
    void* late = nullptr;
    std::vector<std::string> paused;
    const Hook making = saver.before_pause([&](const PauseEvent&) {
        if (late == nullptr) late = make("late");
    });
    const Hook after = saver.after_pause([&](const PauseEvent& event) { paused = event.tags; });
    CHECK(saver.pause().released_bytes > 0);
    CHECK(row_of(saver, "second").state == "paused");
    CHECK(row_of(saver, "late").state == "active"); // no hook was told of it
    CHECK(std::find(paused.begin(), paused.end(), "late") == paused.end());
    (void)saver.pause(Tags::under("la"));
    CHECK(row_of(saver, "late").state == "paused");
    CHECK(paused == std::vector<std::string>{"late"});

    const Hook pausing = saver.before_resume([&](const ResumeEvent&) { (void)make("later"); });
    saver.resume();
    for (const char* tag : {"first", "second", "late", "later"}) CHECK(row_of(saver, tag).state == "active");
    for (void* block : {first, second, late}) saver.deallocate(block, already_idle);
}

TEST_CASE_FIXTURE(OnSaver, "a resume in the middle of which the saver is closed is Misuse" * on_machines) {
    (void)saver.arena("a").allocate(2_MiB);
    saver.pause();
    const Hook closes = saver.before_resume([&](ResumeEvent&) { Doing{[&] { saver.close(); }}.join(); });
    CHECK_THROWS_AS(saver.resume(), Misuse);
}
} // namespace saver_hooks_test
