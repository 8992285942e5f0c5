// Ranges on a profiler's timeline, with a fake NVTX. static/interop_test.cpp compiles them with the real one.
#include "memsaver/interop/nvtx.hpp"
#include "support/each_of.hpp"

namespace interop_nvtx_test {
using namespace test;

/// What a profiler would record.
struct Timeline {
    std::vector<std::string> lines;
    std::map<std::uint64_t, std::string> open;
    std::uint64_t last = 0;
};
Timeline* timeline = nullptr;

struct FakeNvtx {
    std::uint64_t start(const char* name) const {
        timeline->lines.push_back(std::string{"+ "} + name);
        timeline->open[++timeline->last] = name;
        return timeline->last;
    }
    void end(std::uint64_t range) const {
        REQUIRE(timeline->open.contains(range));
        timeline->lines.push_back("- " + timeline->open[range]);
        timeline->open.erase(range);
    }
    void mark(const char* name) const { timeline->lines.push_back(std::string{"! "} + name); }
};

using Ranges = BasicNvtxRanges<FakeNvtx>;

/// A separate timeline for each test.
struct Watched : OnHost {
    Watched() { timeline = &seen; }
    ~Watched() { timeline = nullptr; }
    Timeline seen;
};

TEST_CASE_FIXTURE(Watched, "pause, save, resume, restore and trim are ranges, and every other event is passed on") {
    std::size_t passed_on = 0;
    MemorySaver saver{machine.driver, {.events = Ranges{[&](const Event&) { ++passed_on; }}}};
    void* const block = saver.arena("weights", HostBackup{}).allocate(4_MiB);
    void* const other = saver.arena("cache", Zero{}, {.capacity = 64_MiB}).allocate(4_MiB);
    write_pattern(machine.driver, block, 4_MiB, 1);
    (void)saver.pause({"weights", "cache"});
    CHECK(seen.open.empty());
    CHECK(seen.lines == std::vector<std::string>{"+ pause weights, cache", "+ save weights", "+ save cache",
                                                 "- save weights", "- save cache", "- pause weights, cache"});
    seen.lines.clear();
    (void)saver.resume("weights");
    CHECK(seen.lines ==
          std::vector<std::string>{"+ resume weights", "+ restore weights", "- restore weights", "- resume weights"});
    (void)saver.resume();
    CHECK(seen.open.empty());
    seen.lines.clear();
    saver.deallocate(other);
    (void)saver.trim("cache");
    CHECK(seen.lines == std::vector<std::string>{"+ trim cache", "! trimmed 4.00 MiB cache", "- trim cache"});
    CHECK(passed_on >= 12);
    CHECK(has_pattern(machine.driver, block, 4_MiB, 1));
}

TEST_CASE_FIXTURE(Watched, "whatever fails, every range that was opened is closed") {
    const Call call = each_of({Call::open_event, Call::record_device, Call::copy_to_host, Call::unmap, Call::release,
                               Call::create, Call::map, Call::copy_to_device});
    MemorySaver saver{machine.driver, {.events = Ranges{}}};
    void* const block = saver.arena("weights", HostBackup{}).allocate(4_MiB);
    write_pattern(machine.driver, block, 4_MiB, 1);
    machine.driver.fail({.call = call});
    (void)succeeds<Error>([&] { (void)saver.pause(); });
    CHECK(seen.open.empty());
    (void)succeeds<Error>([&] { (void)saver.resume(); });
    CHECK(seen.open.empty());
    machine.driver.heal();
    (void)saver.resume();
    CHECK(seen.open.empty());
    CHECK(has_pattern(machine.driver, block, 4_MiB, 1));
}

TEST_CASE_FIXTURE(Watched, "a hook's exception closes the range of the pause") {
    MemorySaver saver{machine.driver, {.events = Ranges{}}};
    (void)saver.arena("tag").allocate(1_MiB);
    const Hook hook = saver.before_pause([](PauseEvent&) { throw 7; });
    CHECK_THROWS_AS((void)saver.pause(), int);
    CHECK(seen.open.empty());
    CHECK(seen.lines.size() == 2);
}

TEST_CASE_FIXTURE(Watched, "ranges name a device other than the first, may overlap, and copies share them") {
    const Ranges ranges;
    const Ranges copy = ranges; // NOLINT(performance-unnecessary-copy-initialization): that is what is tested
    ranges({EventKind::began, "a", 1, "save"});
    ranges({EventKind::began, "a", 1, "save"});
    ranges({EventKind::began, "b", 0, "save"});
    copy({EventKind::ended, "a", 1, "save"});
    CHECK(seen.open.size() == 2);
    copy({EventKind::ended, "b", 0, "save"});
    copy({EventKind::ended, "a", 1, "save"});
    copy({EventKind::ended, "never begun", 1, "save"});
    copy({EventKind::retried, "", 0, "no room"});
    copy({EventKind::progress, "a", 0, "saving", 1, 2});
    CHECK(seen.open.empty());
    CHECK(seen.lines == std::vector<std::string>{"+ save a (device 1)", "+ save a (device 1)", "+ save b",
                                                 "- save a (device 1)", "- save b", "- save a (device 1)",
                                                 "! no room"});
}

TEST_CASE_FIXTURE(Watched, "switched off, no range is opened") {
    MemorySaver saver{machine.driver, {.enabled = false, .events = Ranges{}}};
    (void)saver.arena("tag").allocate(1_MiB);
    pause_and_resume(saver);
    CHECK(seen.lines.empty());
}

TEST_CASE_FIXTURE(Watched, "a capture is a range, also one that fails") {
    MemorySaver saver{machine.driver, {.events = Ranges{}}};
    const OwnStream stream{machine.driver};
    {
        const Graph graph = capture(saver, "graph", stream, [] {});
        CHECK(seen.lines == std::vector<std::string>{"+ capture graph", "- capture graph"});
        CHECK_THROWS_AS((void)capture(saver, "graph", stream, [] { throw 7; }), int);
    }
    CHECK(seen.open.empty());
    CHECK(seen.lines.size() == 4);
}
} // namespace interop_nvtx_test
