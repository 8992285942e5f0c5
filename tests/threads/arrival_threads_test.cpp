// Many threads share one arrival while others operate on its tags. For the thread sanitizer.
#include "graph/graph_support.hpp"
#include "support/machines.hpp"

namespace threads_arrival_threads_test {
using namespace test;

constexpr std::size_t block_bytes = 2_MiB;
constexpr int rounds = 8;

TEST_CASE("many threads wait for parts of one arrival, others end it, join it and allocate" * on_hosts) {
    const Checked machine;
    const auto& driver = machine.driver;
    MemorySaver saver{driver};
    for (const AnyPolicy& policy :
         {AnyPolicy{HostBackup{}}, AnyPolicy{HostBackup{.storage = Storage::pageable, .threads = 2}}}) {
        std::optional<Arena> arena{saver.arena("tag", policy)};
        std::vector<Buffer<unsigned char>> blocks;
        for (std::size_t i = 0; i < 3; ++i) {
            blocks.emplace_back(*arena, block_bytes);
            write_bytes(driver, blocks[i].data(), pattern(block_bytes, i));
        }
        for (int round = 0; round < rounds; ++round) {
            saver.pause("tag");
            std::atomic<int> wrong{0};
            {
                const Arrival coming = saver.resume_async("tag", {.first = {{blocks[2].data(), block_bytes}}});
                std::vector<std::thread> threads;
                for (std::size_t i = 0; i < blocks.size(); ++i) {
                    threads.emplace_back([&, i] { // reads after waiting
                        if (i == 1) {
                            coming.wait(blocks[i].data(), block_bytes);
                            wrong += read_bytes(driver, blocks[i].data(), block_bytes) != pattern(block_bytes, i);
                            return;
                        }
                        const OwnStream stream{driver};
                        coming.before(stream, blocks[i].data(), block_bytes);
                        wrong += bytes_behind(driver, stream, blocks[i].data(), block_bytes) != pattern(block_bytes, i);
                    });
                }
                threads.emplace_back([&] { // each ends it in a different way
                    if (round % 4 == 0) coming.wait();
                    if (round % 4 == 1) (void)saver.resume("tag");
                    if (round % 4 == 2) saver.invalidate("tag");
                    if (round % 4 == 3) (void)coming.report();
                });
                threads.emplace_back([&] {
                    const Arrival joined = saver.resume_async("tag");
                    while (!joined.done()) joined.wait(blocks[0].data(), block_bytes);
                });
                threads.emplace_back([&] { saver.deallocate(arena->allocate(100'000)); });
                threads.emplace_back([&] {
                    (void)saver.usage();
                    (void)saver.bytes_to_resume();
                    (void)coming.done();
                });
                for (std::thread& thread : threads) thread.join();
            }
            CHECK(wrong == 0);
        }
        arena.reset();
        blocks.clear();
        saver.drop("tag");
    }
}

TEST_CASE("graphs of many threads are replayed behind gates while bytes come" * on_hosts) {
    using D = MachineDriver;
    const Checked machine;
    const D& driver = machine.driver;
    MemorySaver saver{driver};
    for (const AnyPolicy& policy :
         {AnyPolicy{HostBackup{}}, AnyPolicy{HostBackup{.storage = Storage::pageable, .threads = 2}}}) {
        std::optional<Buffer<unsigned char>> block{std::in_place, saver.arena("tag", policy), 4 * block_bytes};
        struct Reader {
            explicit Reader(const D& on) : stream{on}, outbox{on, block_bytes} {}
            OwnStream<D> stream;
            Outbox<D> outbox;
            Graph graph;
        };
        std::vector<std::unique_ptr<Reader>> readers;
        for (std::size_t i = 0; i < 4; ++i) {
            unsigned char* const part = block->data() + i * block_bytes;
            write_bytes(driver, part, pattern(block_bytes, i));
            Reader& reader = *readers.emplace_back(std::make_unique<Reader>(driver));
            const Gate gate = saver.gate(part, block_bytes);
            reader.graph = capture(saver, "graphs", reader.stream, [&] {
                gate.before(reader.stream);
                reader.outbox.fetch(part, reader.stream);
            });
        }
        std::atomic<int> wrong{0};
        for (int round = 0; round < rounds; ++round) {
            saver.pause("tag");
            std::optional<Arrival> coming{saver.resume_async("tag", {.first = {{block->data(), block_bytes}}})};
            std::vector<std::thread> threads;
            for (std::size_t i = 0; i < readers.size(); ++i) {
                threads.emplace_back([&, i] {
                    Reader& reader = *readers[i];
                    for (int replay = 0; replay < 2; ++replay) {
                        reader.outbox.clear();
                        reader.graph.launch(reader.stream);
                        wait_for(driver, reader.stream);
                        wrong += reader.outbox.bytes() != pattern(block_bytes, i);
                    }
                });
            }
            threads.emplace_back([&] { // makes and destroys gates
                for (std::size_t i = 0; i < 20; ++i) (void)saver.gate(block->data() + i, block_bytes);
            });
            threads.emplace_back([&] {
                if (round % 3 == 0) (void)saver.resume("tag");
                if (round % 3 == 1) saver.resume_async("tag").wait();
                if (round % 3 == 2) coming.reset();
            });
            for (std::thread& thread : threads) thread.join();
        }
        CHECK(wrong == 0);
        readers.clear();
        block.reset();
        saver.drop("tag");
    }
}

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
