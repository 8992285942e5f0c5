// Operations that run out of host memory at every point: they lose no resources, and memory that may be in use is not
// reused.
#include "failing_new.hpp"
#include "support/machines.hpp"

namespace no_memory_operations_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;

/// Calls `act` with the allocation after `n` others failing. Returns whether that allocation was reached.
template <class Act>
bool without_memory(int n, Act&& act) {
    no_memory::countdown = n;
    (void)succeeds<Error>(act); // or not: both are permitted
    const bool reached = no_memory::countdown < 0;
    no_memory::countdown = -1;
    return reached;
}

/// Runs `round(n)` for n = 0, 1, ... until it returns that memory sufficed.
template <class Round>
void for_each_point(Round&& round) {
    for (int n = 0;; ++n) {
        REQUIRE(n < 1000);
        CAPTURE(n);
        if (!round(n)) return;
    }
}

TEST_CASE("resume: dead memory that it was about to drop is dropped by the next one") {
    for_each_point([](int n) {
        const Machine driver{HostDriver{512_MiB}};
        TaggedArena<Machine> arena{driver, "tag", {}, {.capacity = 64_MiB}};
        void* const first = arena.allocate(20_MiB);
        void* const second = arena.allocate(20_MiB);
        (void)arena.allocate(2_MiB);
        (void)arena.pause();
        arena.deallocate(first);
        arena.deallocate(second);
        const bool again = without_memory(n, [&] { (void)arena.resume(); });
        (void)arena.resume();
        (void)arena.trim();
        CHECK(driver.handle_bytes() == 2_MiB);
        CHECK(arena.usage().mapped_bytes == 2_MiB);
        for (int i = 0; i < 2; ++i) CHECK(arena.allocate(20_MiB) != nullptr); // its addresses are free too
        return again;
    });
}

TEST_CASE("pause: disk space that was allocated and could not be noted is used by the next one") {
    for_each_point([](int n) {
        const Machine driver{HostDriver{512_MiB}};
        TaggedArena<Machine, HostBackup> arena{
            driver, "tag", {.storage = Storage::pageable, .threads = 1, .ring_bytes = 4_MiB}};
        (void)arena.allocate(8_MiB);
        const bool again = without_memory(n, [&] { (void)arena.pause(); });
        (void)arena.pause();
        CHECK(driver.handle_bytes() == 0);
        CHECK(driver.host_bytes() == 12_MiB); // one region, and the ring
        return again;
    });
}

TEST_CASE("pause: if it fails halfway, without host memory, extents that are still there are not taken for paused") {
    for (const bool refused : {false, true}) {
        CAPTURE(refused);
        for_each_point([&](int n) {
            const Machine driver{HostDriver{512_MiB}};
            TaggedArena<Machine> arena{driver, "tag"};
            (void)arena.allocate(20_MiB);
            void* const block = arena.allocate(20_MiB); // neither the first extent nor the largest
            (void)arena.allocate(20_MiB);
            // The first is unmapped, others stay.
            driver.fail({.call = Call::unmap, .nth = 2, .lasting = Lasting::onwards});
            const bool again = without_memory(n, [&] { (void)arena.pause(); });
            driver.heal();
            if (refused) { // an operation in between that does nothing
                driver.fail({.call = Call::create, .kind = StatusKind::out_of_memory});
                (void)succeeds<OutOfMemory>([&] { (void)arena.resume(); });
                driver.heal();
            }
            {
                (void)arena.resume();
                const test::HeldStream busy{driver.inner()}; // works on the block
                arena.deallocate(block);
                const auto* const begin = static_cast<std::byte*>(block);
                for (int i = 0; i < 30; ++i) {
                    const void* const other = arena.allocate(1_MiB);
                    CHECK((other < begin || other >= begin + 20_MiB));
                }
            }
            return again;
        });
    }
}

TEST_CASE("saver: a tag that could not be made does not exist, and leaves nothing open") {
    for_each_point([](int n) {
        const Machine driver{HostDriver{512_MiB}};
        MemorySaver saver{driver};
        const bool again = without_memory(n, [&] { (void)saver.arena("tag"); });
        saver.close();
        CHECK(driver.everything_given_back());
        return again;
    });
}

TEST_CASE("FileSource: loads, pauses and resumes without memory lose nothing, and go on") {
    const std::string path = "/proc/self/exe"; // an existing file that stays
    constexpr std::size_t bytes = 300'000;
    std::ifstream file{path, std::ios::binary};
    std::vector<char> wanted(bytes);
    file.seekg(1);
    REQUIRE(file.read(wanted.data(), bytes));
    for (const int what : {0, 1, 2}) {
        CAPTURE(what);
        for_each_point([&](int n) {
            const Machine driver{HostDriver{512_MiB}};
            TaggedArena<Machine, FileSource> arena{driver, "tag", {.threads = 1, .ring_bytes = 4_MiB}};
            char* const block = static_cast<char*>(arena.allocate(1_MiB));
            const auto load = [&] { arena.load(block + 100, bytes, path, 1); };
            bool again = false;
            std::memset(block, 1, 1_MiB);
            if (what == 0) again = without_memory(n, load);
            load();
            if (what == 1) again = without_memory(n, [&] { (void)arena.pause(); });
            (void)arena.pause();
            CHECK(driver.handle_bytes() == 0);
            if (what == 2) again = without_memory(n, [&] { (void)arena.resume(); });
            (void)arena.resume();
            CHECK(std::memcmp(block + 100, wanted.data(), bytes) == 0);
            CHECK(block[99] == 1);
            CHECK(block[100 + bytes] == 1);
            return again;
        });
    }
}
} // namespace no_memory_operations_test
