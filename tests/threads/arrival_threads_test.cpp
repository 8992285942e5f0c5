// Many threads share one arrival while others operate on its tags. For the thread sanitizer.
#include "support/machines.hpp"

namespace threads_arrival_threads_test {
using namespace test;

constexpr std::size_t block_bytes = 2_MiB;
constexpr int rounds = 8;

TEST_CASE_FIXTURE(OnMachine, "saving ahead while threads allocate, free, invalidate and pause" * on_hosts) {
    const auto& driver = machine.driver;
    MemorySaver saver{driver};
    const Arena arena = saver.arena("frozen", HostBackup{.refresh = Refresh::once});
    const Buffer<unsigned char> frozen{arena, block_bytes};
    write_bytes(driver, frozen.data(), pattern(block_bytes, 1));
    for (int round = 0; round < rounds; ++round) {
        const Arrival saved = saver.save("frozen");
        std::thread blocks{[&] {
            for (int i = 0; i < 20; ++i) saver.deallocate(arena.allocate(10'000));
        }};
        std::thread other{[&] {
            if (round % 2 == 0) saver.invalidate("frozen");
            (void)saver.save("frozen").report();
        }};
        std::thread asker{[&] {
            (void)saved.done();
            saved.wait(frozen.data(), block_bytes);
        }};
        if (round % 2 == 1) saved.wait();
        for (std::thread* const thread : {&blocks, &other, &asker}) thread->join();
        pause_and_resume(saver, "frozen");
        CHECK(read_bytes(driver, frozen.data(), block_bytes) == pattern(block_bytes, 1));
    }
}

TEST_CASE_FIXTURE(OnMachine, "a saver is closed while threads wait for arriving bytes" * on_hosts) {
    for (int round = 0; round < rounds; ++round) {
        MemorySaver saver{machine.driver};
        const AnyPolicy policy = round % 2 == 0 ? HostBackup{} : HostBackup{.storage = Storage::pageable, .threads = 1};
        const Buffer<unsigned char> block{saver.arena("tag", policy), 4 * block_bytes};
        saver.pause("tag");
        const Arrival coming = saver.resume_async("tag");
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&, i] {
                try {
                    if (i == 0) coming.wait();
                    if (i == 1) coming.wait(block.data() + block_bytes, block_bytes);
                    if (i == 2) (void)coming.report();
                } catch (const Error&) { // closed, or held back
                }
            });
        }
        saver.close();
        for (std::thread& thread : threads) thread.join();
        CHECK(coming.done());
    }
}
} // namespace threads_arrival_threads_test
