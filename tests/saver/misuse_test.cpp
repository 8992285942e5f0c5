// What cannot be meant, as a whole: whatever a program does wrong is refused by an exception that says what, and the
// saver is as it was. What belongs to one call is tested beside it; docs/reliability.md says where.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace test;

namespace {

/// What a saver shows of itself.
template <class Saver>
std::vector<std::array<std::size_t, 6>> shown(Saver& saver) {
    std::vector<std::array<std::size_t, 6>> rows;
    for (const ArenaUsage& row : saver.usage()) {
        rows.push_back(
            {row.reserved_bytes, row.mapped_bytes, row.held_bytes, row.used_bytes, row.paused_bytes, row.blocks});
    }
    return rows;
}

} // namespace

TEST_CASE_TEMPLATE("misuse changes nothing, whether memory is active or paused", M, MEMSAVER_TEST_MACHINES) {
    for (const bool paused : {false, true}) {
        CAPTURE(paused);
        const Checked<M> machine;
        MemorySaver saver{machine.driver};
        MemorySaver other{machine.driver};
        const Arena arena = saver.arena("tag", HostBackup{.threads = 1}, {.capacity = 64_MiB});
        auto* const block = static_cast<unsigned char*>(arena.allocate(3_MiB));
        auto* const small = static_cast<unsigned char*>(arena.allocate(1000));
        void* const freed = arena.allocate(5_MiB);
        void* const foreign = other.arena("tag").allocate(1_MiB);
        int on_the_host = 0;
        unsigned char* plain = nullptr;
        {
            const auto out = saver.outside();
            plain = static_cast<unsigned char*>(saver.allocate(1000));
        }
        StreamRef stream;
        REQUIRE(machine.driver.open_stream(stream).ok());
        write_pattern(machine.driver, block, 3_MiB, 1);
        write_pattern(machine.driver, small, 1000, 2);
        arena.deallocate(freed);
        if (paused) (void)saver.pause();

        constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
        const std::vector<std::function<void()>> wrongs{
            [&] { saver.deallocate(freed); },
            [&] { saver.deallocate(freed, already_idle); },
            [&] { saver.deallocate(foreign); },
            [&] { saver.deallocate(&on_the_host); },
            [&] { saver.deallocate(block + 4096); },
            [&] { saver.deallocate(block + 1, stream); },
            [&] { saver.deallocate(small + 256, already_idle); },
            [&] { saver.deallocate(plain + 256); },
            [&] { arena.deallocate(plain); },
            [&] { (void)arena.allocate(0); },
            [&] { (void)arena.allocate(huge); },
            [&] { (void)arena.allocate(huge - 255); },
            [&] { (void)arena.allocate(64_MiB + 1); },
            [&] { (void)arena.allocate(62_MiB); }, // would fit an empty arena
            [&] { (void)arena.allocate(1, 3); },
            [&] { (void)saver.allocate(1); },
            [&] { (void)saver.arena("tag", Zero{}); },
            [&] { (void)saver.arena("tag", HostBackup{.threads = 2}); },
            [&] { (void)saver.region("tag", Discard{}); },
            [&] { (void)saver.arena("tag", HostBackup{.threads = 1}, {.capacity = 32_MiB}); },
            [&] { (void)saver.arena(""); },
            [&] { (void)saver.pause("nobody"); },
            [&] {
                (void)saver.pause({"tag", "nobody"});
            },
            [&] {
                (void)saver.resume({"tag", "nobody"});
            },
            [&] { (void)saver.trim("nobody"); },
            [&] { saver.invalidate("nobody"); },
            [&] { saver.prepare("nobody"); },
            [&] { (void)saver.bytes_to_resume("nobody"); },
            [&] { (void)saver.backup_view(foreign, 1); },
            [&] { (void)saver.backup_view(block, 3_MiB + 4096); },
            [&] { (void)saver.before_pause({}); },
            [&] { Buffer<double>(arena, -1); },
            [&] { Buffer<double>(arena, huge / 8 + 1); },
        };
        const auto before = shown(saver);
        for (std::size_t i = 0; i < wrongs.size(); ++i) {
            CAPTURE(i);
            CHECK_THROWS_AS(wrongs[i](), Misuse);
            CHECK(shown(saver) == before);
        }
        if (paused) (void)saver.resume();
        CHECK(has_pattern(machine.driver, block, 3_MiB, 1));
        CHECK(has_pattern(machine.driver, small, 1000, 2));
        saver.deallocate(block);
        saver.deallocate(plain);
        CHECK_THROWS_AS(saver.deallocate(plain), Misuse);
        REQUIRE(machine.driver.close_stream(stream).ok());
    }
}

TEST_CASE_TEMPLATE("a block that two threads give up at once is given up by one", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("tag");
    for (int i = 0; i < 50; ++i) {
        void* const block = arena.allocate(i % 2 == 0 ? 300 : 300'000);
        std::atomic<int> ready{0};
        std::atomic<int> freed{0};
        std::atomic<int> refused{0};
        const auto give_up = [&] {
            ++ready;
            while (ready < 2) std::this_thread::yield();
            try {
                saver.deallocate(block);
                ++freed;
            } catch (const Misuse&) {
                ++refused;
            }
        };
        std::thread second{give_up};
        give_up();
        second.join();
        CHECK(freed == 1);
        CHECK(refused == 1);
    }
    CHECK(arena.usage().blocks == 0);
}

TEST_CASE_TEMPLATE("what outlives close and its saver is refused, and its end is quiet", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    std::optional<MemorySaver<typename M::Driver>> saver{std::in_place, machine.driver};
    const Arena arena = saver->arena("tag");
    const Buffer<char> buffer{arena, 1000};
    WorkspacePool pool{arena};
    const Hook hook = saver->before_pause([](PauseEvent&) {});
    {
        const auto region = saver->region("tag");
        void* const block = saver->allocate(1000);
        saver->close();
        saver.reset();
        CHECK_THROWS_AS((void)region.allocate(1), Misuse);
        CHECK_THROWS_AS(region.arena().deallocate(block), Misuse);
        CHECK_THROWS_AS((void)arena.allocate(1), Misuse);
        CHECK_THROWS_AS((void)pool.get("a", 1), Misuse);
        CHECK(arena.usage().state == "closed");
    }
}

TEST_CASE_TEMPLATE("an event sink that throws stands in nobody's way", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    std::atomic<int> told{0};
    MemorySaver saver{machine.driver, {.events = [&](const Event&) {
                          ++told;
                          throw std::runtime_error{"the sink's own trouble"};
                      }}};
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1});
    void* const block = arena.allocate(3_MiB);
    write_pattern(machine.driver, block, 3_MiB, 1);
    arena.deallocate(arena.allocate(20_MiB));
    (void)saver.trim();
    for (const Call call : {Call::release, Call::unmap}) { // trouble that is told
        machine.driver.fail({.call = call});
        CHECK_THROWS_AS((void)saver.pause(), DriverError);
        machine.driver.heal();
        (void)saver.pause();
        CHECK(machine.driver.handle_bytes() == 0);
        (void)saver.resume();
        CHECK(has_pattern(machine.driver, block, 3_MiB, 1));
    }
    CHECK(told > 4);
    saver.close();
}

TEST_CASE_TEMPLATE("a hook may pause another saver, and wait for a thread that pauses its own", M,
                   MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver};
    MemorySaver other{machine.driver};
    (void)saver.arena("a").allocate(2_MiB);
    (void)saver.arena("b").allocate(2_MiB);
    (void)other.arena("c").allocate(2_MiB);
    int depth = 0; // the thread is joined
    const Hook hook = saver.before_pause([&](PauseEvent&) {
        if (depth++ > 0) return;
        (void)other.pause();
        CHECK_THROWS_AS((void)saver.pause("b"), Misuse); // here
        std::thread{[&] { (void)saver.pause("b"); }}.join();
        saver.prepare("a");
        saver.invalidate("a");
    });
    (void)saver.pause("a");
    CHECK(depth == 2);
    CHECK(machine.driver.handle_bytes() == 0);
}

TEST_CASE_TEMPLATE("an exception that is no std::exception passes through hooks, bodies and regions", M,
                   MEMSAVER_TEST_MACHINES) {
    struct Odd {};
    const Checked<M> machine;
    MemorySaver saver{machine.driver};
    void* const block = saver.arena("tag", HostBackup{.threads = 1}).allocate(2_MiB);
    write_pattern(machine.driver, block, 2_MiB, 1);
    for (int i = 0; i < 2; ++i) {
        {
            const Hook hook = saver.before_pause([](PauseEvent&) { throw Odd{}; });
            CHECK_THROWS_AS((void)saver.pause(), Odd);
        }
        CHECK(row_of(saver, "tag").state == "active");
        {
            const Hook hook = saver.after_pause([](PauseEvent&) { throw Odd{}; });
            CHECK_THROWS_AS((void)saver.pause(), Odd);
        }
        CHECK(row_of(saver, "tag").state == "paused");
        (void)saver.resume();
        CHECK(has_pattern(machine.driver, block, 2_MiB, 1));
    }
    try {
        const auto region = saver.region("tag");
        throw Odd{};
    } catch (const Odd&) {
    }
    CHECK_THROWS_AS((void)saver.allocate(1), Misuse); // the region has ended
}
