// Operations over several tags: their turns, lists of them, and the cost of tags that hold nothing.
#include "support/each_of.hpp"

#include <time.h>

namespace saver_many_tags_test {
using namespace test;

TEST_CASE("many tags: an operation that waits for the turn of one leaves the others unchanged") {
    const MachineDriver driver{HostDriver{128_MiB}};
    MemorySaver saver{driver};
    const Arena a = saver.arena("a");
    a.deallocate(a.allocate(64_MiB), already_idle);
    const Buffer<char> kept{saver.arena("b", HostBackup{}), 32_MiB};
    (void)saver.pause("b");
    const HeldLane lane{driver, Direction::in};
    Doing restores{[&] { (void)saver.resume("b"); }};
    while (driver.calls(Call::copy_to_device) == 0) std::this_thread::yield();
    Doing pauses{[&] { (void)saver.pause({"a", "b"}); }};
    std::this_thread::sleep_for(50ms);
    CHECK(a.usage().state == "active");
    saver.deallocate(a.allocate(60_MiB));
    lane.let_go();
    restores.join();
    pauses.join();
    CHECK(a.usage().state != "active");
}

/// A policy whose first slot blocks until it is released, and then optionally fails.
struct Slow {
    struct Slot {
        void prepare(const LiveSet&) {}
        Ticket save(const LiveSet&) { return {}; }
        Ticket restore(const LiveSet&) { return {}; }
        void resumed() noexcept {}
        void forget(std::uint64_t) noexcept {}
        void invalidate() noexcept {}
        [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return 0; }
    };
    [[nodiscard]] std::string_view name() const noexcept { return "slow"; }
    [[nodiscard]] Slot open(const AnyDriver&) const {
        begun->store(true);
        while (held->load()) std::this_thread::yield();
        if (fails) throw std::runtime_error{"no slot"};
        return {};
    }
    friend bool operator==(const Slow&, const Slow&) = default;

    std::atomic<bool>* begun;
    std::atomic<bool>* held;
    bool fails = false;
};

TEST_CASE("many tags: who waits for another thread to make a tag gets that one, or makes it if that fails") {
    const bool fails = either("fails", "succeeds");
    std::atomic<bool> begun{false};
    std::atomic<bool> held{true};
    MemorySaver saver{HostDriver{64_MiB}};
    Doing makes{[&] { (void)saver.arena("a", Slow{&begun, &held, fails}); }};
    while (!begun) std::this_thread::yield();
    Doing waits{[&] {
        const Arena arena = fails ? saver.arena("a", HostBackup{}) : saver.arena("a");
        saver.deallocate(arena.allocate(1_MiB));
    }};
    std::this_thread::sleep_for(std::chrono::milliseconds{30}); // it most likely waits now
    CHECK(!waits.over());
    held = false;
    if (fails) CHECK_THROWS_AS(makes.join(), std::runtime_error);
    if (!fails) makes.join();
    waits.join();
    CHECK(saver.arena("a").usage().policy == (fails ? "host" : "slow"));
}

TEST_CASE("many tags: lists for every operation on tags") {
    MemorySaver saver{HostDriver{1_GiB}};
    const Buffer<char> a{saver.arena("weights", HostBackup{}), 1 << 20};
    const Buffer<char> b{saver.arena("kv_cache", HostBackup{}), 1 << 20};
    const Buffer<char> c{saver.arena("other"), 1 << 20};
    saver.prepare({"weights", "kv_cache"});
    CHECK(saver.pause({"kv_cache", "weights", "kv_cache"}).tags.size() == 2); // each once
    saver.invalidate({"weights", "kv_cache"});
    CHECK(saver.bytes_to_resume({"weights", "kv_cache"}) == saver.bytes_to_resume());
    const Report resumed = saver.resume({"weights", "kv_cache"});
    REQUIRE(resumed.tags.size() == 2);
    CHECK(resumed.tags[0].tag == "weights"); // in the order of the list
    CHECK(saver.trim({"weights", "kv_cache"}).tags.size() == 2);
    CHECK(saver.pause(std::vector<std::string>{}).tags.empty()); // an empty list does not mean every tag
    CHECK(saver.pause(Tags::under("w")).tags.size() == 1);
    CHECK(saver.pause(Tags::under("nothing")).tags.empty());
    CHECK_THROWS_AS(saver.pause({"other", "unknown"}), Misuse);
    CHECK(row_of(saver, "other").state == "active");
}

TEST_CASE("many tags: those that hold nothing cost no driver call") {
    const MachineDriver machine{HostDriver{1_GiB}};
    MemorySaver saver{machine};
    std::vector<Buffer<char>> live;
    for (int i = 0; i < 10; ++i)
        live.emplace_back(saver.arena("live." + std::to_string(i), ArenaOptions{.capacity = 16_MiB}), 1_MiB);
    const auto calls = [&] {
        pause_and_resume(saver); // the first one releases the unused memory of new tags
        const std::uint64_t before = machine.calls();
        pause_and_resume(saver);
        return machine.calls() - before;
    };
    const std::uint64_t few = calls();
    for (int i = 0; i < 400; ++i) {
        const Arena arena = saver.arena("dead." + std::to_string(i), ArenaOptions{.capacity = 16_MiB});
        arena.deallocate(arena.allocate(4_KiB), already_idle);
    }
    CHECK(few > 0);
    CHECK(calls() == few);
    CHECK(saver.pause().tags.size() == 10);
}

/// Returns the CPU time of this thread for a pause and for a resume of so many tags. The least of some rounds.
std::pair<double, double> cost_of(int tags) {
    MemorySaver saver{HostDriver{64_MiB, {.granularity = 4096}}};
    for (int i = 0; i < tags; ++i) (void)saver.arena(std::to_string(i), Discard{}).allocate(4096);
    const auto cpu = [] {
        timespec now{};
        REQUIRE(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
        return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
    };
    std::pair<double, double> least{1e18, 1e18};
    for (int round = 0; round < 3; ++round) {
        const double start = cpu();
        (void)saver.pause();
        const double paused = cpu();
        (void)saver.resume();
        least = {std::min(least.first, paused - start), std::min(least.second, cpu() - paused)};
    }
    return least;
}

TEST_CASE("many tags: the work of a pause and of a resume is proportional to them") {
    // CPU time, so that other programs do not matter. 16 times the work, or 256 times if it grew with the square.
    const auto few = cost_of(500);
    const auto many = cost_of(8000);
    MESSAGE("pause " << many.first / few.first << " times the work, resume " << many.second / few.second << " times");
    CHECK(many.first < 64 * few.first);
    CHECK(many.second < 64 * few.second);
}

TEST_CASE("many tags: addresses come with what is allocated, for three blocks of 32 GiB and for 500 tags") {
    const MachineDriver driver{HostDriver{128_GiB}};
    MemorySaver saver{driver};
    const Arena large = saver.arena("large");
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(large.allocate(32_GiB));
    for (void* const block : blocks) CHECK(saver.owns(static_cast<char*>(block) + 32_GiB - 1));
    const std::size_t before = driver.reserved_bytes();
    CHECK(before <= 192_GiB);
    for (int i = 0; i < 500; ++i) CHECK(saver.owns(saver.arena(std::to_string(i)).allocate(1000)));
    CHECK(driver.reserved_bytes() - before <= 500 * 512_MiB);
    CHECK(large.usage().mapped_bytes == 96_GiB);
    CHECK(saver.pause().tags.size() == 501);
    CHECK(driver.handle_bytes() == 0);
}
} // namespace saver_many_tags_test
