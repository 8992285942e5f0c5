// Operations that run out of host memory at every point: they lose no resources, and memory that may be in use is not
// reused.
#include "failing_new.hpp"
#include "memsaver/backup/compressed.hpp"
#include "memsaver/backup/peer_backup.hpp"
#include "support/machines.hpp"

#include <algorithm>
#include <random>

namespace no_memory_operations_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;

/// Calls `act` with the allocation after `n` others failing. Returns whether that allocation was reached.
template <class Act>
bool without_memory(int n, Act&& act) {
    countdown = n;
    (void)succeeds<Error>(act); // or not: both are permitted
    const bool reached = countdown < 0;
    countdown = -1;
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

TEST_CASE("peer backup: bytes that pass through the host without memory for that are refused") {
    const Machine driver{HostDriver{512_MiB}};
    const Machine peer{HostDriver{512_MiB, {.device = 1}}};
    TaggedArena<Machine, PeerBackup> arena{driver, "tag", {peer}};
    auto* const block = static_cast<std::byte*>(arena.allocate(8_MiB));
    (void)arena.pause();
    for_each_point([&](int n) {
        const std::vector<std::byte> fresh(1000, std::byte{7});
        bool again = without_memory(n, [&] { arena.write_backup(block, fresh.data(), fresh.size()); });
        again = without_memory(n, [&] { (void)arena.backup_view(block, fresh.size()); }) || again;
        return again;
    });
    CHECK(*arena.backup_view(block, 1000).data() == std::byte{7});
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

/// Has no thread free: who waits for a transfer does its work.
struct Late final : Executor {
    void submit(std::function<void()>) override {}
};

TEST_CASE("Compressed: a backup that could not be saved takes no room later that it does not have") {
    const HostBackup on_this_thread{.threads = 1, .executor = std::make_shared<Late>()};
    for_each_point([&](int n) {
        MemorySaver saver{HostDriver{16_MiB, {.granularity = 64_KiB}}};
        const Arena arena = saver.arena("packed", Compressed<HostBackup>{.policy = on_this_thread, .pieces = 1});
        auto* const block = static_cast<unsigned char*>(arena.allocate(192_KiB));
        std::memset(block, 5, 192_KiB);
        const bool again = without_memory(n, [&] { (void)saver.pause(); });
        (void)saver.resume();
        auto* const more = static_cast<unsigned char*>(arena.allocate(2_MiB));
        std::generate_n(more, 2_MiB, std::minstd_rand{}); // what no codec makes smaller
        pause_and_resume(saver);
        REQUIRE(std::count(block, block + 192_KiB, 5) == 192_KiB);
        return again;
    });
}

TEST_CASE("trim_cuda_pools: no host memory to list the devices does not spoil the pause") {
    MemorySaver saver{HostDriver{64_MiB}};
    (void)saver.arena("tag").allocate(2_MiB);
    const Hook first = saver.after_pause([](PauseEvent&) { countdown = 0; });
    const Hook trim = saver.after_pause(trim_cuda_pools);
    bool failed = false;
    const Hook last = saver.after_pause([&](PauseEvent&) { failed = std::exchange(countdown, -1) < 0; });
    Report report;
    CHECK_NOTHROW(report = saver.pause());
    CHECK(failed);
    CHECK(report.released_bytes != 0);
}

TEST_CASE("use: needs no host memory once it has moved tags") {
    MemorySaver saver{HostDriver{64_MiB}};
    (void)saver.arena("tag").allocate(2_MiB);
    saver.pause();
    const Hook last = saver.after_resume([](ResumeEvent&) { countdown = 0; });
    Use used;
    CHECK_NOTHROW(used = saver.use("tag"));
    countdown = -1;
    CHECK(used);
}
} // namespace no_memory_operations_test
