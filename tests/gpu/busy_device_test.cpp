// A busy GPU: frees do not wait for it, freed memory is not reused while work may touch it, and a pause waits for it. A
// gate keeps kernels running as long as a test needs; no test depends on timing.
#include "gpu/gpu_support.hpp"

#include <chrono>
#include <future>
#include <set>

namespace gpu_busy_device_test {
using namespace gpu_test;

/// An arena with memory for exactly two blocks, so that a third must reuse one of them.
constexpr std::size_t block_bytes = 2_MiB;
using Two = TaggedArena<Watched, Discard>;
Two make_two(const Watched& driver) { return {driver, "two", {}, {.capacity = 2 * block_bytes}}; }

TEST_CASE_FIXTURE(OnGpu, "deallocate does not wait for a busy device") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("tag");
    std::vector<void*> blocks;
    for (int i = 0; i < 64; ++i) blocks.push_back(arena.allocate(i % 2 == 0 ? 4_KiB : 3_MiB));

    program.shut_gate();
    program.wait_and_store(program.stream, nullptr, 0);
    const auto waits = [&] { return books.driver.calls(Call::drain) + books.driver.calls(Call::wait); };
    const auto before = waits();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i % 3 == 0) arena.deallocate(blocks[i]);
        if (i % 3 == 1) arena.deallocate(blocks[i], program.stream);
        if (i % 3 == 2) arena.deallocate(blocks[i], program.other_stream);
    }
    CHECK(waits() == before);
    CHECK_FALSE(program.idle(program.stream)); // otherwise the kernel ended by its own limit
    program.open_gate();
    program.synchronize();
    saver.close();
}

TEST_CASE("a block that was freed while a kernel writes to it is not handed out before the kernel has ended") {
    Program program;
    const Ledgered books;
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("tag");
    for (const std::size_t bytes : {4_KiB, 3_MiB}) {
        for (const bool with_stream : {false, true}) {
            CAPTURE(bytes);
            CAPTURE(with_stream);
            void* const block = arena.allocate(bytes);
            program.shut_gate();
            program.wait_and_store(program.stream, block, 0xBAD);
            if (with_stream) {
                arena.deallocate(block, program.stream);
            } else {
                arena.deallocate(block);
            }
            std::set<void*> later;
            for (int i = 0; i < 8; ++i) later.insert(arena.allocate(bytes));
            CHECK(later.count(block) == 0);
            CHECK_FALSE(program.idle(program.stream));
            program.open_gate();
            program.synchronize();
            for (void* one : later) arena.deallocate(one, already_idle);
        }
    }
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "freed with a stream: reusable once that stream has passed, whatever others do") {
    Two arena = make_two(books.driver);
    void* const a = arena.allocate(block_bytes);
    void* const b = arena.allocate(block_bytes);

    program.shut_gate();
    program.wait_and_store(program.stream, a, 0xBAD);
    arena.deallocate(a, program.stream);
    arena.deallocate(b, program.other_stream); // which has no work
    program.native.stream_synchronize(program.other_stream);
    CHECK(arena.allocate(block_bytes) == b);
    CHECK_FALSE(program.idle(program.stream));

    program.open_gate();
    must(program.native.stream_synchronize(program.stream), "cuStreamSynchronize");
    CHECK(arena.allocate(block_bytes) == a);
    arena.close();
}

TEST_CASE_FIXTURE(OnGpu, "freed without a stream: handed out again only after waiting for the device") {
    Two arena = make_two(books.driver);
    void* const a = arena.allocate(block_bytes);
    (void)arena.allocate(block_bytes);

    program.shut_gate();
    program.wait_and_store(program.stream, a, 0xBAD);
    arena.deallocate(a);
    books.driver.on_call([&](const CallRecord& call) {
        if (call.call == Call::drain) program.open_gate(); // the kernel ends once the driver is drained
    });
    CHECK(arena.allocate(block_bytes) == a);
    CHECK(program.idle(program.stream));
    CHECK(books.driver.calls(Call::drain) == 1);
    books.driver.on_call({});
    arena.close();
}

TEST_CASE_FIXTURE(OnGpu, "a pause waits for kernels that use the memory") {
    MemorySaver saver{books.driver};
    Buffer<std::uint32_t> buffer{saver.arena("tag"), 16 << 20};
    program.shut_gate();
    program.wait_and_store(program.stream, buffer.data(), 1); // unmapping memory under it would lose the context

    SUBCASE("with a time limit that passes: NotIdle, and nothing has changed") {
        for (const Order& order : {Order{}, after(program.stream)}) {
            PauseOptions options;
            options.order = order;
            options.timeout = std::chrono::milliseconds{5};
            CHECK_THROWS_AS(saver.pause("tag", options), NotIdle);
            CHECK(books.driver.calls(Call::unmap) == 0);
        }
        CHECK_FALSE(program.idle(program.stream));
        program.open_gate();
        program.synchronize();
        CHECK(program.read(buffer.data(), 1) == std::vector<std::uint32_t>{1});
    }
    SUBCASE("by default for the whole device") {
        books.driver.on_call([&](const CallRecord& call) {
            if (call.call == Call::wait || call.call == Call::query) program.open_gate();
        });
        saver.pause("tag");
        CHECK(program.idle(program.stream));
        saver.resume("tag");
    }
    SUBCASE("or for the streams it is given") {
        bool seen = false;
        books.driver.on_call([&](const CallRecord& call) {
            if (call.call == Call::wait || call.call == Call::query) {
                seen = true;
                program.open_gate();
            }
        });
        saver.pause("tag", {.order = after(program.stream)});
        CHECK(seen);
        CHECK(program.idle(program.stream));
        saver.resume("tag");
    }
    SUBCASE("and for no others") {
        const Buffer<int> unused{saver.arena("unused"), 1 << 20};
        CHECK(saver.pause("unused", {.order = after(program.other_stream)}).released_bytes != 0);
        saver.resume("unused");
        CHECK_FALSE(program.idle(program.stream));
        program.open_gate();
    }
    SUBCASE("or for nothing: a tag that no work uses pauses while the device is busy") {
        const Buffer<int> unused{saver.arena("unused"), 1 << 20};
        const Report paused = saver.pause("unused", {.order = already_idle});
        CHECK(paused.released_bytes != 0);
        saver.resume("unused");
        CHECK_FALSE(program.idle(program.stream));
        program.open_gate();
    }
    books.driver.on_call({});
    program.open_gate();
    program.synchronize();
    program.fill(buffer.data(), 1, buffer.size_bytes()); // the context and the memory are valid
    buffer.reset();
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "allocating and growing go on while the device is busy") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("tag");
    program.shut_gate();
    program.wait_and_store(program.stream, nullptr, 0);
    auto elsewhere = std::async(std::launch::async, [&] {
        std::vector<void*> blocks;
        for (int i = 0; i < 50; ++i) blocks.push_back(arena.allocate(static_cast<std::size_t>(i + 1) * 300'000));
        return blocks;
    });
    const auto blocks = elsewhere.get();
    CHECK_FALSE(program.idle(program.stream));
    program.open_gate();
    for (void* block : blocks) arena.deallocate(block);
    saver.close();
}
} // namespace gpu_busy_device_test
