// Pressure: an amount of free device memory that is maintained at every allocation.
#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"
#include "support/bytes.hpp"
#include "support/held_stream.hpp"
#include "support/machines.hpp"
#include "support/turnstile.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace saver_pressure_test {

using namespace test;

namespace {

using D = MachineDriver;
using Saver = MemorySaver<D>;

constexpr std::size_t unit = 256_KiB;

/// A machine of 256 units, 96 of which must stay free, and a tag of 80 that is not in use.
struct World {
    static constexpr std::size_t pressure = 96 * unit;

    explicit World(SaverOptions options = {}) : saver{driver, with_pressure(std::move(options))} {
        idle = Buffer<unsigned char>{saver.arena("idle", HostBackup{.threads = 1}), 80 * unit};
        write_pattern(driver, idle.data(), 80 * unit, 1);
        { const Use use = saver.use("idle"); }
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    ~World() {
        idle.reset();
        saver.close();
        check_given_back(driver);
    }

    SaverOptions with_pressure(SaverOptions options) {
        options.pressure = pressure;
        options.events = told.sink();
        return options;
    }
    [[nodiscard]] std::size_t free_bytes() const {
        DeviceMemory memory;
        REQUIRE(driver.inner().memory(memory).ok());
        return memory.free_bytes;
    }
    [[nodiscard]] std::string state(const char* tag) { return row_of(saver, tag).state; }
    [[nodiscard]] bool whole() {
        (void)saver.resume("idle");
        return has_pattern(driver, idle.data(), 80 * unit, 1);
    }

    Told told;
    D driver{HostDriver{256 * unit, {.granularity = 64_KiB}}};
    Saver saver;
    Buffer<unsigned char> idle;
};

} // namespace

TEST_CASE("pressure: an allocation that leaves too little free has idle tags go") {
    World world;
    CHECK(world.state("idle") == "active");
    const Buffer<char> some{world.saver.arena("busy"), 64 * unit};
    CHECK(world.state("idle") == "active"); // 112 are free
    const Buffer<char> more{world.saver.arena("busy"), 64 * unit};
    CHECK(world.state("idle") == "paused");
    CHECK(world.free_bytes() == 128 * unit);
    CHECK(world.saver.usage().residency().evictions == 1);
    CHECK(world.whole());
}

TEST_CASE("pressure: what takes no memory does not look") {
    World world;
    const Arena arena = world.saver.arena("busy");
    const Buffer<char> first{arena, 64 * unit};
    world.saver.deallocate(arena.allocate(1000), already_idle);
    const std::uint64_t before = world.driver.calls(Call::memory);
    for (int i = 0; i < 100; ++i) world.saver.deallocate(arena.allocate(1000), already_idle);
    CHECK(world.driver.calls(Call::memory) == before);
    (void)world.saver.resume("busy");
    { const Use use = world.saver.use("busy"); }
    CHECK(world.driver.calls(Call::memory) == before);
}

TEST_CASE("pressure: what is unused goes first, then elastic memory, then idle tags") {
    World world;
    std::size_t asked = 0;
    Elastic range;
    range = world.saver.arena("elastic").elastic(
        256 * unit, {.granularity = 16 * unit, .on_reclaim = [&](std::size_t bytes) -> std::size_t {
                         asked += bytes;
                         if (range.committed_bytes() == 0) return 0;
                         range.release(0, 16 * unit, already_idle);
                         return 16 * unit;
                     }});
    range.commit(0, 16 * unit);
    const Arena unused = world.saver.arena("unused");
    unused.deallocate(unused.allocate(40 * unit), already_idle);
    const Buffer<char> first{world.saver.arena("busy"), 40 * unit}; // 80 are free
    CHECK(row_of(world.saver, "unused").mapped_bytes == 0);
    CHECK(asked == 0);
    CHECK(world.free_bytes() == 120 * unit);
    const Buffer<char> second{world.saver.arena("busy"), 40 * unit};
    CHECK(asked == 16 * unit);
    CHECK(world.free_bytes() == 96 * unit);
    CHECK(world.state("idle") == "active");
    const Buffer<char> third{world.saver.arena("busy"), 2 * unit};
    CHECK(world.state("idle") == "paused");
    CHECK(world.free_bytes() > 96 * unit);
    const std::size_t before = asked;
    range.commit(0, 64 * unit); // its owner is not called for its own allocation
    CHECK(asked == before);
    CHECK(range.committed_bytes() == 64 * unit);
}

TEST_CASE("pressure: whatever takes memory looks, and what it is for stays") {
    World world;
    Saver& saver = world.saver;
    const auto evicted = [&] {
        const bool gone = world.state("idle") == "paused";
        CHECK(world.free_bytes() >= 96 * unit - 80 * unit);
        return gone;
    };
    std::optional<Buffer<char>> big{std::in_place, saver.arena("big", HostBackup{.threads = 1}), 150 * unit};
    CHECK(evicted());
    { const Use use = saver.use("big"); } // "big" may be evicted from here on
    (void)saver.pause("big");
    SUBCASE("resume") {
        CHECK(world.whole());
        (void)saver.resume("big");
        CHECK(world.state("big") == "active");
    }
    SUBCASE("resume_async") {
        CHECK(world.whole());
        const Arrival coming = saver.resume_async("big");
        coming.wait();
        CHECK(world.state("big") == "active");
    }
    SUBCASE("use") {
        CHECK(world.whole());
        const Use use = saver.use("big");
        CHECK(world.state("big") == "active");
    }
    SUBCASE("exchange, of what the one has more than the other") {
        const Buffer<char> small{saver.arena("small"), 2 * unit};
        CHECK(world.whole());
        (void)saver.exchange("small", "big");
        CHECK(world.state("big") == "active");
    }
    SUBCASE("commit and resize") {
        big.reset();
        CHECK(world.whole());
        Elastic range = saver.arena("big").elastic(256 * unit, {.granularity = 2 * unit});
        range.commit(0, 40 * unit);
        CHECK(world.state("idle") == "active");
        range.resize(140 * unit);
        CHECK(evicted());
        range = {};
        return;
    }
    SUBCASE("a workspace") {
        big.reset();
        CHECK(world.whole());
        WorkspacePool pool{saver.arena("workspaces"), {.cap = 200 * unit}};
        (void)pool.get("a", 140 * unit);
        CHECK(evicted());
        return;
    }
    SUBCASE("plain memory") {
        big.reset();
        (void)saver.trim();
        CHECK(world.whole());
        const auto out = saver.outside();
        const Buffer<char> plain{out, 140 * unit};
        CHECK(evicted());
        return;
    }
    SUBCASE("a reserve") {
        big.reset();
        CHECK(world.whole());
        (void)saver.arena("reserved", Discard{}, {.reserve = 140 * unit});
        CHECK(evicted());
        return;
    }
    CHECK(evicted());
}

TEST_CASE("pressure: what is in use, or not evictable, stays, and the call succeeds") {
    World world;
    const Use use = world.saver.use("idle");
    const Buffer<char> kept{world.saver.arena("kept"), 120 * unit};
    CHECK(world.free_bytes() == 56 * unit);
    CHECK(world.state("idle") == "active");
    const Buffer<char> more{world.saver.arena("kept"), 56 * unit}; // pressure refuses nothing
    CHECK(world.free_bytes() == 0);
    CHECK(world.told.of(EventKind::ignored).empty());
}

TEST_CASE("pressure: nothing is waited for") {
    World world;
    HeldStream stream{host_of(world.driver)};
    {
        Use use = world.saver.use("idle");
        use.until(stream.get());
    }
    const Buffer<char> some{world.saver.arena("busy"), 120 * unit}; // would hang
    CHECK(world.state("idle") == "active");
    stream.finish();
    CHECK(world.driver.drain().ok());
    const Buffer<char> more{world.saver.arena("busy"), 2 * unit};
    CHECK(world.state("idle") == "paused");
}

TEST_CASE("pressure: a tag that something else is done with is passed by") {
    World world;
    Stuck stuck{world.driver, Call::pin_host, [&] { world.saver.prepare("idle"); }, Whose::anybodys};
    const Buffer<char> some{world.saver.arena("busy"), 120 * unit}; // would hang
    CHECK(world.state("idle") == "active");
    stuck.go_on();
    const Buffer<char> more{world.saver.arena("busy"), 2 * unit};
    CHECK(world.state("idle") == "paused");
    CHECK(world.told.of(EventKind::ignored).empty());
}

TEST_CASE("pressure: hooks run, may allocate, and give nothing back themselves") {
    World world;
    Saver& saver = world.saver;
    const Buffer<char> other{saver.arena("other", Discard{}, {.evictable = true}), 2 * unit};
    std::vector<std::string> events;
    std::vector<Buffer<char>> made;
    const Hook before = saver.before_pause([&](PauseEvent& event) {
        events.push_back("before " + event.tags.front());
        made.emplace_back(saver.arena("made"), 8 * unit);
    });
    const Hook after = saver.after_pause([&](PauseEvent& event) { events.push_back("after " + event.tags.front()); });
    saver.set_priority("other", 5);
    const Buffer<char> busy{saver.arena("busy"), 84 * unit}; // 90 are free
    CHECK(events == std::vector<std::string>{"before idle", "after idle"});
    CHECK(made.size() == 1);
    CHECK(world.state("other") == "active");
    CHECK(world.state("made") == "active");
}

TEST_CASE("pressure: what fails is told, and the memory is there") {
    World world;
    Saver& saver = world.saver;
    std::optional<Hook> hook;
    SUBCASE("a hook that refuses") {
        hook.emplace(saver.before_pause([](PauseEvent&) { throw std::runtime_error{"not now"}; }));
    }
    SUBCASE("a hook that runs after it") {
        hook.emplace(saver.after_pause([](PauseEvent&) { throw std::runtime_error{"too late"}; }));
    }
    SUBCASE("a hook that throws what is no exception") {
        hook.emplace(saver.after_pause([](PauseEvent&) { throw 7; }));
    }
    SUBCASE("a save") { world.driver.fail({.call = Call::copy_to_host, .lasting = Lasting::onwards}); }
    SUBCASE("a look") { world.driver.fail({.call = Call::memory, .lasting = Lasting::onwards}); }
    SUBCASE("a release") { world.driver.fail({.call = Call::release, .lasting = Lasting::onwards}); }
    const Buffer<char> busy{saver.arena("busy"), 88 * unit};
    world.driver.heal();
    CHECK(row_of(saver, "busy").used_bytes == 88 * unit);
    hook.reset();
    const Buffer<char> more{saver.arena("busy"), 2 * unit};
    CHECK(world.state("idle") == "paused");
    CHECK(world.free_bytes() >= 96 * unit);
    CHECK(world.whole());
}

TEST_CASE("pressure: an owner of elastic memory that throws is told of") {
    World world;
    const Use use = world.saver.use("idle");
    Elastic range = world.saver.arena("elastic").elastic(
        64 * unit,
        {.granularity = 16 * unit, .on_reclaim = [](std::size_t) -> std::size_t { throw std::runtime_error{"mine"}; }});
    range.commit(0, 16 * unit);
    const Buffer<char> busy{world.saver.arena("busy"), 80 * unit};
    const std::vector<Event> events = world.told.of(EventKind::ignored);
    REQUIRE(events.size() == 1);
    CHECK(contains(events[0].text, "mine"));
    CHECK(contains(events[0].text, "pressure"));
}

TEST_CASE("pressure: what owners of elastic memory release behind work is not waited for") {
    const Checked machine{host_machine};
    HeldStream held{host_of(machine.driver)};
    MemorySaver saver{machine.driver, {.pressure = 100_GiB}};
    Elastic cache;
    int asked = 0;
    cache = saver.arena("cache").elastic(64_MiB, {.granularity = 2_MiB, .on_reclaim = [&](std::size_t) {
                                                      ++asked;
                                                      const std::size_t bytes = cache.committed_bytes();
                                                      if (bytes != 0) cache.release(0, 64_MiB, after(held.get()));
                                                      return bytes;
                                                  }});
    cache.commit(0, 64_MiB);
    void* const block = saver.arena("other").allocate(16_MiB); // would hang
    CHECK(asked != 0);
    held.let_go();
    saver.deallocate(block, already_idle);
}

TEST_CASE("pressure: what owners release and the device has not passed yet is not asked for again") {
    const D driver{HostDriver{64_MiB}};
    MemorySaver saver{driver, {.pressure = 16_MiB}};
    Elastic cache;
    cache = saver.arena("cache").elastic(64_MiB, {.granularity = 2_MiB, .on_reclaim = [&](std::size_t wanted) {
                                                      const std::size_t before = cache.committed_bytes();
                                                      cache.resize(before - std::min(before, wanted));
                                                      return before - cache.committed_bytes();
                                                  }});
    cache.commit(0, 40_MiB);
    Elastic other = saver.arena("other").elastic(64_MiB, {.granularity = 2_MiB});
    for (std::size_t i = 0; i < 12; ++i) other.commit(i * 2_MiB, 2_MiB);
    CHECK(cache.committed_bytes() == 24_MiB); // of 64: 24 for the other one and 16 kept free
    (void)saver.trim();
    DeviceMemory memory;
    REQUIRE(driver.memory(memory).ok());
    CHECK(memory.free_bytes == 16_MiB);
}

TEST_CASE("pressure: captures are left alone") {
    World world;
    Saver& saver = world.saver;
    OwnStream stream{world.driver};
    Buffer<char> in_graph;
    const Graph graph = capture(saver, "graph", stream, [&] {
        in_graph = Buffer<char>{saver.arena("busy"), 100 * unit};
    });
    CHECK(world.state("idle") == "active");
    const Buffer<char> after{saver.arena("busy"), 2 * unit};
    CHECK(world.state("idle") == "paused");
}

TEST_CASE("pressure: a saver that is switched off gives nothing back") {
    const D driver{HostDriver{256 * unit, {.granularity = 64_KiB}}};
    {
        Saver off{driver, {.enabled = false, .pressure = 100_GiB}};
        const Buffer<char> a{off.arena("a", Discard{}, {.evictable = true}), 64 * unit};
        const Buffer<char> b{off.arena("b"), 64 * unit};
        { const Use use = off.use("a"); }
        CHECK(row_of(off, "a").state == "plain");
    }
    check_given_back(driver);
}

TEST_CASE("pressure: more than there is has all go that may") {
    const D driver{HostDriver{256 * unit, {.granularity = 64_KiB}}};
    {
        Saver saver{driver, {.pressure = 100_GiB}};
        const Buffer<char> a{saver.arena("a", Discard{}, {.evictable = true}), 16 * unit};
        CHECK(row_of(saver, "a").state == "active"); // allocated it
        const Buffer<char> b{saver.arena("b", Discard{}, {.evictable = true}), 16 * unit};
        CHECK(row_of(saver, "a").state == "paused");
        CHECK(row_of(saver, "b").state == "active");
    }
    check_given_back(driver);
}

TEST_CASE("pressure: many threads that take memory, use tags and run hooks") {
    const D driver{HostDriver{256 * unit, {.granularity = 64_KiB}}};
    {
        Saver saver{driver, {.pressure = 96 * unit}};
        std::vector<Buffer<unsigned char>> blocks;
        for (std::size_t i = 0; i < 4; ++i) {
            const std::string tag = "model." + std::to_string(i);
            blocks.emplace_back(saver.arena(tag, HostBackup{.threads = 1}), 24 * unit);
            write_pattern(driver, blocks[i].data(), 24 * unit, i);
            { const Use use = saver.use(tag); }
        }
        std::atomic<int> hooked{0};
        const Hook hook = saver.before_pause([&](PauseEvent&) {
            ++hooked;
            saver.deallocate(saver.arena("hook").allocate(3 * unit), already_idle);
        });
        std::atomic<int> wrong{0};
        std::vector<std::unique_ptr<Doing>> doing;
        for (std::size_t t = 0; t < 6; ++t) {
            doing.push_back(std::make_unique<Doing>([&, t] {
                const Arena own = saver.arena("thread." + std::to_string(t));
                for (std::size_t i = 0; i < 12; ++i) {
                    if (t % 2 == 0) {
                        const Buffer<char> block{own, (1 + (i + t) % 4) * 8 * unit};
                        (void)saver.trim("thread." + std::to_string(t));
                        continue;
                    }
                    const std::size_t n = (i + t) % 4;
                    const Use use = saver.use("model." + std::to_string(n));
                    wrong += has_pattern(driver, blocks[n].data(), 24 * unit, n) ? 0 : 1;
                }
            }));
        }
        for (const auto& thread : doing) CHECK_NOTHROW(thread->join());
        CHECK(wrong == 0);
        CHECK(hooked > 0);
        (void)saver.trim();
        const Buffer<char> last{saver.arena("last"), 100 * unit};
        DeviceMemory memory;
        REQUIRE(driver.inner().memory(memory).ok());
        CHECK(memory.free_bytes >= 96 * unit);
    }
    check_given_back(driver);
}

TEST_CASE("pressure: what a new tag reserves stays") {
    MemorySaver saver{HostDriver{64_MiB}, {.pressure = 32_MiB}};
    const Arena arena = saver.arena("a", Discard{}, {.reserve = 48_MiB});
    CHECK(arena.usage().mapped_bytes == 48_MiB);
}

} // namespace saver_pressure_test
