// Many threads use more tags than fit into memory: bytes are correct at every use, nothing deadlocks, and waiting uses
// are not passed by more often than documented.
#include "support/machines.hpp"

namespace threads_use_test {
using namespace test;
using D = MachineDriver;

constexpr std::size_t each = 1_MiB;
constexpr unsigned tags = 8;

std::string name_of(unsigned tag) { return "model." + std::to_string(tag); }

/// Eight tags in memory for three, filled with patterns.
struct World {
    explicit World(HostDriverOptions options) : machine{HostDriver{3 * growth, options}} {
        for (unsigned tag = 0; tag < tags; ++tag) {
            (void)saver.reclaim(growth);
            const Arena arena = saver.arena(name_of(tag), HostBackup{.threads = 1}, ArenaOptions{.evictable = true});
            blocks.emplace_back(machine.driver, arena, each, tag);
        }
    }
    [[nodiscard]] bool whole(unsigned tag) const { // checks one word; other tests compare the bytes
        const std::size_t at = 8 * (tag + 1);
        return read_bytes(machine.driver, blocks[tag].data() + at, 64) == part_of(pattern(at + 64, tag), at, 64);
    }

    static constexpr std::size_t growth = 2_MiB; // the memory of a tag with one block
    const Checked machine;
    MemorySaver<D> saver{machine.driver};
    std::vector<Filled<D>> blocks{};
};

HostDriverOptions options_of_chosen() {
    const bool nasty = chosen_machine() == nasty_machine;
    return {.poison = nasty, .late = nasty};
}

TEST_CASE("threads: sixteen of them use eight tags in the room of three" * on_hosts) {
    World world{options_of_chosen()};
    auto& saver = world.saver;
    constexpr int threads = 16;
    constexpr int rounds = 60;
    std::atomic<int> wrong{0};
    std::atomic<int> served{0};
    std::atomic<int> refused{0};
    const auto uses = [&](unsigned tag, Use use) {
        wrong += world.whole(tag) ? 0 : 1;
        return use;
    };
    Threads crew{threads, [&](std::size_t thread) {
                     std::mt19937 random{static_cast<unsigned>(thread) + 1};
                     const OwnStream stream{world.machine.driver};
                     const auto upto = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
                     for (int round = 0; round < rounds; ++round) {
                         const unsigned tag = std::min(upto(tags), upto(tags)); // some are used more often
                         const std::string name = name_of(tag);
                         const std::string other = name_of(upto(tags));
                         try {
                             switch (upto(12)) {
                             case 0: (void)saver.reclaim(World::growth); break;
                             case 1: (void)saver.pause(name, {.order = already_idle, .timeout = 1s}); break;
                             case 2: uses(tag, saver.use({name, other})).until(stream); break;
                             case 3: { // a second use while it holds one: never waits for another thread's
                                 const Use outer = uses(tag, saver.use(name));
                                 const Use inner = saver.use(other);
                                 break;
                             }
                             case 4: (void)uses(tag, saver.use(name, {.room_within = 1ms, .timeout = 1s})); break;
                             case 5: (void)saver.usage(); break;
                             // Uses it while its bytes are in flight, or after an eviction, in which case the use
                             // resumes it.
                             case 6: {
                                 const Arrival coming = saver.resume_async(name);
                                 Use use = saver.use(name, {.await_bytes = false});
                                 coming.wait();
                                 (void)uses(tag, std::move(use));
                                 break;
                             }
                             default: {
                                 Use use = uses(tag, saver.use(name));
                                 if (upto(2) == 0) use.until(stream);
                                 served += 1;
                             }
                             }
                         } catch (const OutOfMemory&) {
                             refused += 1;
                         } catch (const NotIdle&) {
                             refused += 1;
                         }
                     }
                 }};
    crew.join();
    CHECK(wrong == 0);
    CHECK(served > 0);
    const ResidencyUsage counts = saver.usage().residency();
    CHECK(counts.evictions > 0);
    for (const ArenaUsage& row : saver.usage()) CHECK(row.users == 0);
    MESSAGE(served.load() << " served, " << refused.load() << " refused, " << counts.hits << " hits, " << counts.misses
                          << " misses, " << counts.waits << " waits");
}

TEST_CASE("threads: uses of resident tags pass a waiting one, but not for ever") {
    World world{{}};
    auto& saver = world.saver;
    for (unsigned tag = 0; tag < 3; ++tag) (void)saver.use(name_of(tag));
    std::atomic<bool> stop{false};
    std::atomic<bool> got{false};
    std::atomic<int> after{0};
    Turnstile ready;
    // Three threads keep three tags in use without a gap: each begins its next use before the other's has ended.
    Threads busy{6, [&](std::size_t thread) {
                     const std::string tag = name_of(static_cast<unsigned>(thread % 3));
                     ready.pass();
                     while (!stop) {
                         const Use use = saver.use(tag);
                         if (got) after += 1;
                         std::this_thread::yield();
                     }
                 }};
    ready.await(6);
    ready.open();
    CHECK_NOTHROW([&] {
        const Use wanted = saver.use(name_of(7)); // would starve if the others always passed
        got = true;
        CHECK(world.whole(7));
    }());
    stop = true;
    busy.join();
}

TEST_CASE("threads: uses of tags that a waiting one wants queue behind it, all others pass") {
    World world{{}};
    auto& saver = world.saver;
    for (unsigned tag = 0; tag < 3; ++tag) (void)saver.use(name_of(tag));
    std::optional<Use> all{saver.use({name_of(0), name_of(1), name_of(2)})};
    const auto waits = [&] { return saver.usage().residency().waits; };
    Doing waiting{[&] { // needs the memory of one of them
        const Use use = saver.use(name_of(7));
        CHECK(world.whole(7));
    }};
    while (waits() < 1) std::this_thread::yield();
    Doing passing{[&] {
        for (int n = 0; n < 200; ++n) {
            const Use one = saver.use(name_of(1));
            const Use other = saver.use(name_of(2));
        }
    }};
    passing.join();
    CHECK(!waiting.over());
    Doing behind{[&] {
        const Use use = saver.use(name_of(0));
        CHECK(world.whole(0));
    }};
    while (waits() < 2) std::this_thread::yield();
    CHECK(!behind.over());
    // By a thread that already holds a use: never waits. From now on the waiting one may want a tag used longer ago.
    const Use held = saver.use(name_of(0));
    CHECK(!waiting.over());
    all.reset();
}

TEST_CASE("threads: threads that wait behind a use that a pause holds up go on once it does") {
    MemorySaver saver{HostDriver{20_MiB}};
    const auto make = [&](const char* name, std::size_t bytes) {
        const Arena arena = saver.arena(name, HostBackup{.threads = 1});
        (void)arena.allocate(bytes);
        saver.set_evictable(name, true);
    };
    const auto waiting = [&](std::uint64_t count) {
        while (saver.usage().residency().waits < count) std::this_thread::yield();
        std::this_thread::sleep_for(20ms); // it most likely sleeps now
    };
    make("z", 8_MiB);
    saver.pause("z");
    make("y", 2_MiB);
    saver.pause("y");
    make("x", 8_MiB);
    make("b", 8_MiB);
    std::optional<Use> held{saver.use({"x", "b"})};
    Doing first{[&] { const Use use = saver.use({"x", "z"}); }}; // needs memory that `held` occupies
    waiting(1);
    Doing second{[&] { const Use use = saver.use("y"); }}; // there is free memory, but the first one waits
    waiting(2);
    Doing pauses{[&] { (void)saver.pause("x"); }}; // waits for `held`, and the first one waits for it
    second.join();
    CHECK(!first.over());
    held.reset();
    pauses.join();
    first.join();
}

TEST_CASE("threads: a range of elastic memory ends while its tag is dropped, or its saver closed") {
    for (int round = 0; round < 60; ++round) {
        MemorySaver saver{HostDriver{64_MiB}};
        const Arena arena = saver.arena("tag");
        std::optional<Elastic> range{arena.elastic(64_GiB, {.granularity = 2_MiB})};
        for (std::size_t k = 0; k < 8; ++k) range->commit(k * 4_GiB, 2_MiB);
        std::atomic<int> ready{0};
        Doing ends{[&] {
            for (++ready; ready < 2;) std::this_thread::yield();
            range.reset();
        }};
        for (++ready; ready < 2;) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds{round * 15});
        if (round % 2 == 0) saver.drop("tag");
        if (round % 2 != 0) saver.close();
        ends.join();
    }
}

TEST_CASE("threads: a tag that comes to a second device while it is dropped can be used") {
    const HostDriver first{64_MiB};
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{first};
    for (int round = 0; round < 300; ++round) {
        (void)saver.arena("tag").allocate(1_MiB);
        std::atomic<bool> go{false};
        Doing making{[&] {
            while (!go) std::this_thread::yield();
            (void)saver.arena("tag", Discard{}, second);
        }};
        go = true;
        saver.drop("tag");
        making.join();
        try {
            { const Use use = saver.use("tag"); }
            saver.drop("tag");
        } catch (const Misuse& none) { // made before it was dropped: removed from both
            CHECK(std::string{none.what()}.find("has been dropped") == std::string::npos);
        }
    }
    saver.close();
}
} // namespace threads_use_test
