// A busy GPU: frees do not wait for it, freed memory is not reused while work may touch it, and a pause waits for it. A
// gate keeps kernels running as long as a test needs; no test depends on timing.
#include "gpu/gpu_support.hpp"

#include <chrono>
#include <set>

namespace gpu_busy_device_test {
using namespace gpu_test;

TEST_CASE_FIXTURE(OnGpu,
                  "a block that was freed while a kernel writes to it is not handed out before the kernel has ended") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("tag");
    const auto waits = [&] { return books.driver.calls(Call::drain) + books.driver.calls(Call::wait); };
    for (const std::size_t bytes : {4_KiB, 3_MiB}) {
        for (const bool with_stream : {false, true}) {
            CAPTURE(bytes);
            CAPTURE(with_stream);
            void* const block = arena.allocate(bytes);
            program.shut_gate();
            program.wait_and_store(program.stream, block, 0xBAD);
            const auto before = waits();
            if (with_stream) {
                arena.deallocate(block, program.stream);
            } else {
                arena.deallocate(block);
            }
            CHECK(waits() == before); // a free does not wait
            std::set<void*> later;
            for (int i = 0; i < 8; ++i) later.insert(arena.allocate(bytes)); // the arena may grow meanwhile
            CHECK(later.count(block) == 0);
            CHECK_FALSE(program.idle(program.stream)); // otherwise the kernel ended by its own limit
            program.open_gate();
            program.synchronize();
            for (void* one : later) arena.deallocate(one, already_idle);
        }
    }
    saver.close();
}

/// An arena with memory for exactly two blocks, so that a third must reuse one of them.
constexpr std::size_t block_bytes = 2_MiB;
struct OnTwo : OnGpu {
    TaggedArena<Watched, Discard> arena{books.driver, "two", {}, {.capacity = 2 * block_bytes}};
    void* const a = arena.allocate(block_bytes);
};

TEST_CASE_FIXTURE(OnTwo, "freed with a stream: reusable once that stream has passed, whatever others do") {
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

TEST_CASE_FIXTURE(OnTwo, "freed without a stream: handed out again only after waiting for the device") {
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
            CHECK_THROWS_AS(saver.pause("tag", {.order = order, .timeout = std::chrono::milliseconds{5}}), NotIdle);
            CHECK(books.driver.calls(Call::unmap) == 0);
        }
        CHECK_FALSE(program.idle(program.stream));
        program.open_gate();
        program.synchronize();
        CHECK(program.read(buffer.data(), 1) == std::vector<std::uint32_t>{1});
    }
    SUBCASE("by default for the whole device, or for the streams it is given") {
        for (const bool of_streams : {false, true}) {
            bool seen = false;
            books.driver.on_call([&](const CallRecord& call) {
                if (call.call != Call::wait && call.call != Call::query) return;
                seen = true;
                program.open_gate();
            });
            saver.pause("tag", {.order = of_streams ? after(program.stream) : Order{}});
            CHECK(seen);
            CHECK(program.idle(program.stream));
            saver.resume("tag");
            books.driver.on_call({});
            program.shut_gate();
            program.wait_and_store(program.stream, buffer.data(), 1);
        }
    }
    SUBCASE("and for no others: a tag that they do not use, or no work uses, pauses meanwhile") {
        const Buffer<int> unused{saver.arena("unused"), 1 << 20};
        for (const Order& order : {after(program.other_stream), Order{already_idle}}) {
            CHECK(saver.pause("unused", {.order = order}).released_bytes != 0);
            saver.resume("unused");
            CHECK_FALSE(program.idle(program.stream));
        }
    }
    books.driver.on_call({});
    program.open_gate();
    program.synchronize();
    program.fill(buffer.data(), 1, buffer.size_bytes()); // the context and the memory are valid
    buffer.reset();
    saver.close();
}

} // namespace gpu_busy_device_test
