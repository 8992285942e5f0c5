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
        const auto at = [](const void* pointer) { return format_address(reinterpret_cast<Address>(pointer)); };
        const std::string tag = "tag \"tag\"";
        const std::string unknown = "unknown tag \"nobody\"";
        struct Wrong {
            std::function<void()> act;
            std::vector<std::string> says; // tag, pointer and size, where there are any
        };
        const std::vector<Wrong> wrongs{
            {[&] { saver.deallocate(freed); }, {tag, at(freed), "freed before"}},
            {[&] { saver.deallocate(freed, already_idle); }, {tag, at(freed), "freed before"}},
            {[&] { saver.deallocate(foreign); }, {at(foreign), "no tag of this saver"}},
            {[&] { saver.deallocate(&on_the_host); }, {at(&on_the_host), "no tag of this saver"}},
            {[&] { saver.deallocate(block + 4096); }, {tag, at(block + 4096), at(block), "3.00 MiB"}},
            {[&] { saver.deallocate(block + 1, stream); }, {tag, at(block + 1), at(block), "3.00 MiB"}},
            {[&] { saver.deallocate(small + 256, already_idle); }, {tag, at(small + 256), at(small), "1000 B"}},
            {[&] { saver.deallocate(plain + 256); }, {at(plain + 256)}},
            {[&] { arena.deallocate(plain); }, {tag, at(plain)}},
            {[&] { (void)arena.allocate(0); }, {tag, "allocate(0 bytes)", "the size is 0"}},
            {[&] { (void)arena.allocate(huge); }, {tag, std::to_string(huge), "64.00 MiB"}},
            {[&] { (void)arena.allocate(huge - 255); }, {tag, std::to_string(huge - 255), "64.00 MiB"}},
            {[&] { (void)arena.allocate(64_MiB + 1); }, {tag, std::to_string(64_MiB + 1), "64.00 MiB"}},
            {[&] { (void)arena.allocate(62_MiB); }, {tag, "62.00 MiB", "64.00 MiB"}}, // would fit an empty arena
            {[&] { (void)arena.allocate(1, 3); }, {tag, "allocate(1 bytes)", "alignment of 3"}},
            {[&] { (void)saver.allocate(1); }, {"allocate(1 bytes)", "no region"}},
            {[&] { (void)saver.arena("tag", Zero{}); }, {tag, "\"host\"", "\"zero\""}},
            {[&] { (void)saver.arena("tag", HostBackup{.threads = 2}); }, {tag, "other options"}},
            {[&] { (void)saver.region("tag", Discard{}); }, {tag, "\"host\"", "\"discard\""}},
            {[&] { (void)saver.arena("tag", HostBackup{.threads = 1}, {.capacity = 32_MiB}); },
             {tag, "64.00 MiB", "32.00 MiB"}},
            {[&] { (void)saver.arena(""); }, {"tag \"\"", "needs a name"}},
            {[&] { (void)saver.pause("nobody"); }, {unknown}},
            {[&] {
                 (void)saver.pause({"tag", "nobody"});
             },
             {unknown}},
            {[&] {
                 (void)saver.resume({"tag", "nobody"});
             },
             {unknown}},
            {[&] { (void)saver.trim("nobody"); }, {unknown}},
            {[&] { saver.invalidate("nobody"); }, {unknown}},
            {[&] { saver.prepare("nobody"); }, {unknown}},
            {[&] { (void)saver.bytes_to_resume("nobody"); }, {unknown}},
            {[&] { (void)saver.backup_view(foreign, 1); }, {at(foreign), "1 B", "no tag of this saver"}},
            {[&] { (void)saver.backup_view(block, 3_MiB + 4096); }, {tag, at(block), "3.00 MiB", "past the end"}},
            {[&] { (void)saver.before_pause({}); }, {"hook"}},
            {[&] { Buffer<double>(arena, -1); }, {tag, "-1 elements of 8 bytes"}},
            {[&] { Buffer<double>(arena, huge / 8 + 1); }, {tag, std::to_string(huge / 8 + 1), "8 bytes"}},
        };
        const auto before = shown(saver);
        for (std::size_t i = 0; i < wrongs.size(); ++i) {
            CAPTURE(i);
            const std::string text = text_of<Misuse>(wrongs[i].act);
            for (const std::string& part : wrongs[i].says) CHECK_MESSAGE(contains(text, part), part, " in: ", text);
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

TEST_CASE_TEMPLATE("a saver that has been closed says which tag was wanted", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver};
    for (const char* tag : {"a", "b"}) (void)saver.arena(tag).allocate(1000);
    saver.close();
    const auto check_says = [](const std::string& tags, const std::function<void()>& act) {
        CHECK(text_of<Misuse>(act) == tags + ": the saver has been closed");
    };
    check_says("tag \"a\"", [&] { (void)saver.pause("a"); });
    check_says("tags \"b\", \"a\"", [&] { (void)saver.resume({"b", "a"}); });
    check_says("every tag", [&] { (void)saver.trim(); });
    check_says("tag \"new\"", [&] { (void)saver.arena("new", Zero{}); });
    check_says("tag \"a\"", [&] { (void)saver.region("a"); });
    check_says("tag \"outside\"", [&] { (void)saver.outside(); });
    check_says("tag \"a\"", [&] { saver.prepare("a"); });
    check_says("tag \"b\"", [&] { saver.invalidate("b"); });
    check_says("every tag", [&] { (void)saver.bytes_to_resume(); });
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
