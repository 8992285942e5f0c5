// Calls of a saver and an arena on three devices while host memory runs out at each point in turn: they throw one of
// the library's exceptions, usage stays correct, and the same call continues from there.
#include "failing_new.hpp"
#include "memsaver/arena/arena.hpp"
#include "memsaver/backup/compressed.hpp"
#include "support/machines.hpp"
#include "support/sampling.hpp"

#include <algorithm>
#include <random>

namespace no_memory_saver_test {
using namespace test;

/// A tag on three devices whose bytes are kept, and one on the first device.
struct World {
    World() {
        registered.reserve(3);
        for (std::size_t i = 0; i < drivers.size(); ++i) {
            blocks[i] = static_cast<unsigned char*>(saver->arena("kept", policy, drivers[i]).allocate(block_bytes));
            std::memset(blocks[i], static_cast<int>(i) + 1, block_bytes);
        }
        plain = saver->arena("dropped");
        (void)plain.allocate(64_KiB);
        CHECK(drivers[0].open_stream(stream).ok());
        CHECK(drivers[1].open_stream(other).ok());
    }
    ~World() {
        plain = {};
        elastic = {};
        registered.clear();
        card.reset();
        saver.reset();
        CHECK(drivers[0].close_stream(stream).ok());
        CHECK(drivers[1].close_stream(other).ok());
        for (const HostDriver& driver : drivers) {
            HostCounts left = driver.counts();
            left.streams = 0; // closing one in a destructor may be what failed
            CHECK(left == HostCounts{});
            for (const std::string& text : driver.violations()) FAIL_CHECK(text);
        }
    }

    [[nodiscard]] std::size_t mapped() const {
        std::size_t sum = 0;
        for (const HostDriver& driver : drivers) sum += driver.counts().held_bytes;
        return sum;
    }
    /// Checks that the saver's usage equals that of the machines.
    void check_books() {
        std::size_t sum = 0;
        for (const ArenaUsage& row : saver->usage()) sum += row.mapped_bytes;
        CHECK(sum == mapped());
    }
    void check_bytes() const {
        for (std::size_t i = 0; i < drivers.size(); ++i) {
            for (std::size_t at = 0; at < block_bytes; at += 4096) REQUIRE(blocks[i][at] == i + 1);
        }
    }

    static constexpr std::size_t block_bytes = 192_KiB;
    static constexpr HostDriverOptions options_of(int device) { return {.device = device, .granularity = 64_KiB}; }
    std::array<HostDriver, 3> drivers{HostDriver{64_MiB, options_of(0)}, HostDriver{64_MiB, options_of(1)},
                                      HostDriver{64_MiB, options_of(2)}};
    const AnyPolicy policy{HostBackup{.threads = 1}}; // the program's own
    const AnyPolicy zero{Zero{}};
    std::optional<MemorySaver<HostDriver>> saver{std::in_place, drivers[0]};
    Arena plain;
    Elastic elastic;
    std::array<unsigned char*, 3> blocks{};
    void* outside = nullptr;
    std::optional<Registrations> card;
    std::vector<Registration> registered;
    int known = 0; // number of registrations at the card
    StreamRef stream;
    StreamRef other; // of the second device
};

using Act = std::function<void(World&)>;

/// Calls `operate` on new worlds with its 1st, 2nd, ... allocation failing. If it throws, the exception's report, if
/// any, contains all changes. Returns the number of failures.
int sweep(const Act& prepare, const Act& operate, bool reports = false) {
    const int step = static_cast<int>(test::sampling().stride(16));
    for (int n = static_cast<int>(test::sampling().first(16));; n += step) {
        CAPTURE(n);
        REQUIRE(n < 2000);
        World world;
        prepare(world);
        const std::size_t before = world.mapped();
        bool failed = false;
        try {
            no_memory::countdown = n;
            operate(world);
            failed = no_memory::countdown < 0; // the failure was returned as a status, or no memory was needed
            no_memory::countdown = -1;
        } catch (const Error& error) {
            no_memory::countdown = -1;
            failed = true;
            if (reports && world.mapped() != before) CHECK(!error.report().tags.empty());
        } catch (const std::bad_alloc&) {
            no_memory::countdown = -1;
            failed = true;
            FAIL_CHECK("bad_alloc got out");
        }
        world.check_books();
        if (failed) CHECK_NOTHROW(operate(world));
        world.check_books();
        (void)world.saver->resume();
        world.check_bytes();
        (void)world.saver->pause();
        CHECK(world.mapped() == 0);
        (void)world.saver->resume();
        world.check_bytes();
        if (!failed) return n;
    }
}

int sweep_reported(const Act& prepare, const Act& operate) { return sweep(prepare, operate, true); }

void nothing(World&) {}
void paused(World& world) { (void)world.saver->pause(); }
Act then(const Act& first, const Act& second) {
    return [=](World& world) { first(world), second(world); };
}

TEST_CASE("MemorySaver: pause, whatever host memory it lacks") {
    CHECK(sweep_reported(nothing, [](World& w) { (void)w.saver->pause("kept"); }) > 30);
    const auto list = [](World& w) { (void)w.saver->pause({"dropped", "kept"}, {.order = after(w.stream, w.other)}); };
    CHECK(sweep_reported(nothing, list) > 30);
}

TEST_CASE("hooks: without host memory to run after-hooks, the operation is not reported as failed") {
    std::vector<Hook> hooks;
    const auto hooked = [&](World& w) {
        hooks.clear();
        hooks.push_back(w.saver->after_pause([](PauseEvent&) {}));
        hooks.push_back(w.saver->after_resume([](ResumeEvent&) {}));
    };
    CHECK(sweep_reported(hooked, [](World& w) { (void)w.saver->pause(); }) > 30);
    CHECK(sweep_reported(then(hooked, paused), [](World& w) { (void)w.saver->resume(); }) > 20);
    hooks.clear();
}

TEST_CASE("Registrations: whatever host memory they lack, resident memory is registered") {
    const auto options = [](World& w) { // the program's own
        const long left = std::exchange(no_memory::countdown, -1);
        RegistrationOptions made{.who = "a card with a name that is too long to be kept in place",
                                 .on_pause = OnPause::renew,
                                 .on_register = [&w] { w.known += 1; },
                                 .on_deregister = [&w] { w.known -= 1; }};
        no_memory::countdown = left;
        return made;
    };
    const auto made = [&](World& w) {
        w.card.emplace(*w.saver);
        w.registered.push_back(w.card->add(Tags::all(), options(w)));
        w.registered.push_back(w.card->add(w.blocks[0], 64_KiB, options(w)));
        w.known = 2;
    };
    CHECK(sweep_reported(made, then(paused, [](World& w) { CHECK(w.known == 0); })) > 30);
    const auto resume = [](World& w) {
        (void)w.saver->resume();
        CHECK(w.known == 2);
    };
    CHECK(sweep_reported(then(made, paused), resume) > 20);
    const auto one_more = [&](World& w) {
        { const Registration more = w.card->add(w.blocks[1], 64_KiB, options(w)); }
        CHECK(w.known == 2);
    };
    CHECK(sweep(made, one_more) > 0);
    const auto made_at_last = [&](World& w) {
        w.registered.clear();
        w.card.reset();
        made(w);
    };
    CHECK(sweep(nothing, made_at_last) > 0);
}

TEST_CASE("trim_cuda_pools: no host memory to list the devices does not spoil the pause") {
    World world;
    const Hook first = world.saver->after_pause([](PauseEvent&) { no_memory::countdown = 0; });
    const Hook trim = world.saver->after_pause(trim_cuda_pools);
    bool failed = false;
    const Hook last = world.saver->after_pause([&](PauseEvent&) {
        failed = no_memory::countdown < 0;
        no_memory::countdown = -1;
    });
    Report report;
    CHECK_NOTHROW(report = world.saver->pause("dropped"));
    CHECK(failed);
    CHECK(report.released_bytes != 0);
}

TEST_CASE("MemorySaver: resume, whatever host memory it lacks") {
    CHECK(sweep_reported(paused, [](World& w) { (void)w.saver->resume("kept"); }) > 30);
    CHECK(sweep_reported(paused, [](World& w) { (void)w.saver->resume(); }) > 30);
}

TEST_CASE("MemorySaver: exchange, whatever host memory it lacks") {
    for (const auto& [out, in] : {std::pair{"kept", "dropped"}, {"dropped", "kept"}}) {
        const auto beside = [in = in](World& w) { // as large as the other, so that pages are handed over
            (void)w.plain.allocate(192_KiB);
            (void)w.saver->pause(in);
        };
        CHECK(sweep_reported(beside, [out = out, in = in](World& w) { (void)w.saver->exchange(out, in); }) > 40);
    }
}

TEST_CASE("MemorySaver: bytes on their way, whatever host memory it lacks") {
    ResumeAsyncOptions options; // the program's own
    const auto paused_and_wanted = [&](World& w) {
        paused(w);
        options.first = {{w.blocks[1] + 1000, 100'000}};
    };
    const auto waited = [&](World& w) {
        const Arrival coming = w.saver->resume_async("kept", options);
        coming.before(w.stream, w.blocks[0], 1000);
        coming.wait(w.blocks[2], 1000);
        coming.wait();
        (void)coming.report();
    };
    CHECK(sweep(paused_and_wanted, waited) > 30);
    const auto joined = [](World& w) {
        const Arrival coming = w.saver->resume_async("kept");
        const Arrival more = w.saver->resume_async();
        (void)w.saver->pause("kept");
    };
    CHECK(sweep(paused, joined) > 30);
    const auto ended = [](World& w) { const Arrival coming = w.saver->resume_async("kept"); };
    CHECK(sweep(paused, ended) > 30);
    const auto gated = [&](World& w) {
        const Gate away = w.saver->gate(w.blocks[0], 1000);
        const Gate other = w.saver->gate(w.blocks[1] + 1000, 5000);
        const Arrival coming = w.saver->resume_async("kept", options);
        const Gate late = w.saver->gate(w.blocks[0] + 5000, 1000);
        away.before(w.stream);
        late.before(w.stream);
        coming.wait();
    };
    CHECK(sweep(paused_and_wanted, gated) > 30);
    const auto ahead = [](World& w) {
        (void)w.saver->arena("frozen", HostBackup{.refresh = Refresh::once, .threads = 1}).allocate(100_KiB);
    };
    const auto saved = [](World& w) {
        w.saver->save("frozen").wait();
        (void)w.saver->pause("frozen");
    };
    CHECK(sweep(ahead, saved) > 30);
}

TEST_CASE("Compressed: preparing, pausing, reading and resuming, whatever host memory they lack") {
    constexpr std::size_t bytes = 200_KiB;
    unsigned char* block = nullptr;
    const auto fill = [&](World& w) {
        const Arena arena = w.saver->arena("packed", Compressed<HostBackup>{.policy = {.threads = 1}, .pieces = 1});
        block = static_cast<unsigned char*>(arena.allocate(bytes));
        for (std::size_t at = 0; at < bytes; ++at) block[at] = static_cast<unsigned char>(at / 100);
    };
    CHECK(sweep(fill, [](World& w) { w.saver->prepare("packed"); }) > 0);
    CHECK(sweep(fill, [](World& w) { (void)w.saver->pause("packed"); }) > 10); // its scratch memory may stay
    const auto away = then(fill, [](World& w) { (void)w.saver->pause("packed"); });
    CHECK(sweep(away, [&](World& w) { (void)w.saver->backup_view(block, bytes); }) > 0);
    CHECK(sweep(
              away,
              [&](World& w) {
                  (void)w.saver->resume("packed");
                  for (std::size_t at = 0; at < bytes; ++at) REQUIRE(block[at] == static_cast<unsigned char>(at / 100));
              },
              true) > 5);
}

/// Has no thread free: who waits for a transfer does its work.
struct Late final : Executor {
    void submit(std::function<void()>) override {}
};

TEST_CASE("Compressed: a backup that could not be saved takes no room later that it does not have") {
    const HostBackup on_this_thread{.threads = 1, .executor = std::make_shared<Late>()};
    bool failed = true;
    for (int n = 0; failed; ++n) {
        CAPTURE(n);
        MemorySaver saver{HostDriver{16_MiB, {.granularity = 64_KiB}}};
        const Arena arena = saver.arena("packed", Compressed<HostBackup>{.policy = on_this_thread, .pieces = 1});
        auto* const block = static_cast<unsigned char*>(arena.allocate(192_KiB));
        std::memset(block, 5, 192_KiB);
        no_memory::countdown = n;
        try {
            (void)saver.pause();
            failed = no_memory::countdown < 0;
            no_memory::countdown = -1;
        } catch (const Error&) {
            no_memory::countdown = -1;
        }
        (void)saver.resume();
        auto* const more = static_cast<unsigned char*>(arena.allocate(2_MiB));
        std::generate_n(more, 2_MiB, std::minstd_rand{}); // what no codec makes smaller
        (void)saver.pause();
        (void)saver.resume();
        REQUIRE(std::count(block, block + 192_KiB, 5) == 192_KiB);
    }
}

TEST_CASE("MemorySaver: trim, whatever host memory it lacks") {
    const auto unused = [](World& w) {
        for (const HostDriver& driver : w.drivers) {
            const Arena arena = w.saver->arena("kept", w.policy, driver);
            arena.deallocate(arena.allocate(512_KiB));
        }
    };
    CHECK(sweep_reported(unused, [](World& w) { (void)w.saver->trim(); }) > 10);
}

TEST_CASE("MemorySaver, Arena: their other calls, whatever host memory they lack") {
    const Act calls[] = {
        [](World& w) { w.saver->prepare("kept"); },
        [](World& w) { (void)w.saver->usage(); },
        [](World& w) { w.saver->invalidate("kept"); },
        [](World& w) {
            (void)w.saver->bytes_to_resume({"kept", "dropped"});
        },
        [](World& w) { (void)w.saver->arena("a new tag with a long name", w.zero, w.drivers[1]).allocate(64_KiB); },
        [](World& w) { (void)w.saver->arena("reserved", w.zero, ArenaOptions{.reserve = 512_KiB}); },
        [](World& w) {
            const auto region = w.saver->region("dropped");
            w.saver->deallocate(w.saver->allocate(512_KiB));
        },
        [](World& w) {
            const auto region = w.saver->outside();
            if (w.outside == nullptr) w.outside = w.saver->allocate(512);
            w.saver->deallocate(w.outside);
            w.outside = nullptr;
        },
        [](World& w) { w.saver->deallocate(w.plain.allocate(1000), w.stream); },
        [](World& w) { w.plain.deallocate(w.plain.allocate(1000), already_idle); },
        [](World& w) {
            WorkspacePool pool{w.plain, {.cap = 512_KiB}};
            (void)pool.get("workspace", 128_KiB);
        },
        [](World& w) {
            int runs = 0;
            const Hook before = w.saver->before_pause([&](PauseEvent&) { ++runs; });
            const Hook after = w.saver->after_resume([&](ResumeEvent&) { ++runs; });
            const Hook trim = w.saver->after_pause(trim_cuda_pools);
        },
        [](World& w) {
            MemorySaver second{w.drivers[0]};
            (void)second.arena("kept", w.policy).allocate(64_KiB);
            second.close();
        },
    };
    for (const Act& call : calls) {
        CAPTURE(&call - calls);
        CHECK(sweep(nothing, call) > 0);
    }
    CHECK(sweep(paused, [](World& w) { (void)w.saver->bytes_to_resume(); }) > 0);
    CHECK(sweep(paused, [](World& w) { (void)w.saver->backup_view(w.blocks[1] + 1, 1000); }) >= 0);
    CHECK(sweep(paused, [](World& w) { w.saver->deallocate(w.plain.allocate(1000)); }) > 0);
}

TEST_CASE("Use, reclaim: whatever host memory they lack") {
    const auto use = [](World& w) {
        Use used = w.saver->use({"kept", "dropped"});
        (void)used.lost();
        used.until(w.stream);
        used.until(w.other);
    };
    CHECK(sweep(nothing, use) > 3);
    CHECK(sweep_reported(paused, [](World& w) { (void)w.saver->use("kept"); }) > 30);
    const auto evictable = [](World& w) { w.saver->set_evictable("kept", true); };
    CHECK(sweep(evictable, [](World& w) { (void)w.saver->reclaim(1_GiB); }) > 30);
    CHECK(sweep(evictable, [](World& w) { (void)w.saver->pause("kept", {.order = already_idle}); }) > 30);
}

TEST_CASE("use: needs no host memory once it has moved tags") {
    World world;
    paused(world);
    const Hook last = world.saver->after_resume([](ResumeEvent&) { no_memory::countdown = 0; });
    Use used;
    CHECK_NOTHROW(used = world.saver->use("kept"));
    no_memory::countdown = -1;
    CHECK(used);
}

TEST_CASE("single_handle: whatever host memory it lacks") {
    const ArenaOptions one_handle{.single_handle = true};
    const auto made = [&](World& w) { (void)w.saver->arena("net", w.zero, one_handle).allocate(192_KiB); };
    CHECK(sweep(made, [&](World& w) { (void)w.saver->arena("net").allocate(640_KiB); }) > 3);
    const auto steps = then(made, [&](World& w) {
        w.elastic = w.saver->arena("net").elastic(4_MiB, {.granularity = 128_KiB});
        w.elastic.commit(0, 512_KiB);
    });
    CHECK(sweep(steps, [](World& w) { w.elastic = {}; }) >= 0); // reported; released with its arena at the latest
    CHECK(sweep_reported(steps, [](World& w) { (void)w.saver->pause(); }) > 30);
}

TEST_CASE("Elastic: whatever host memory it lacks") {
    constexpr std::size_t step = 128_KiB;
    const ElasticOptions options{.granularity = step, .on_reclaim = [](std::size_t) { return std::size_t{1}; }};
    const auto made = [&](World& w) { w.elastic = w.saver->arena("kept", w.policy).elastic(4_MiB, options); };
    const auto some = then(made, [](World& w) { w.elastic.commit(0, 4 * step); });
    const auto away = then(some, paused);
    const auto shrink = [](World& w, const Order& order) {
        if (w.elastic.committed_bytes() == 4 * step) w.elastic.release(step, 2 * step, order);
        CHECK(w.elastic.committed_bytes() == 2 * step);
    };
    const auto waits = then(some, [&](World& w) { shrink(w, {}); });
    const Order streams = after(nullptr);
    CHECK(sweep(nothing, made) > 5);
    CHECK(sweep(made, [](World& w) { w.elastic.commit(0, 3 * step); }) > 5);
    CHECK(sweep(some, [&](World& w) { shrink(w, {}); }) > 3);
    CHECK(sweep(some, [&](World& w) { shrink(w, already_idle); }) > 3);
    CHECK(sweep(some, [&](World& w) { shrink(w, streams); }) > 3);
    CHECK(sweep(away, [&](World& w) { shrink(w, {}); }) > 3);
    CHECK(sweep(waits, [](World& w) { w.elastic.commit(0, 4 * step); }) > 3);
    CHECK(sweep(waits, [](World& w) { (void)w.saver->pause(); }) > 30);
    CHECK(sweep(away, [](World& w) { (void)w.saver->resume(); }) > 20);
    CHECK(sweep(some, [](World& w) { w.elastic.resize(step, already_idle); }) > 3);
    CHECK(sweep(some, [](World& w) { (void)w.saver->reclaim(1_GiB); }) > 0);
    CHECK(sweep(waits, [](World& w) { w.elastic = {}; }) >= 0);
}

TEST_CASE("TaggedArena: its life, whatever host memory it lacks") {
    const int failures = sweep(nothing, [](World& w) {
        TaggedArena<HostDriver, HostBackup> arena{w.drivers[0], "alone", {.threads = 1}};
        (void)arena.allocate(100_KiB);
        arena.deallocate(arena.allocate(1000), w.stream);
        arena.prepare();
        (void)arena.pause();
        (void)arena.bytes_to_resume();
        (void)arena.resume();
        (void)arena.trim();
        (void)arena.usage();
        arena.close();
    });
    CHECK(failures > 100);
}
} // namespace no_memory_saver_test
