// Pause and resume on a GPU, end to end: device memory is released and mapped again, addresses and contents are
// correct.
#include "gpu/gpu_support.hpp"

#include <chrono>
#include <optional>
#include <type_traits>

namespace gpu_pause_resume_test {

using namespace gpu_test;

namespace {

std::vector<std::uint32_t> words(std::size_t count, std::uint32_t value) {
    return std::vector<std::uint32_t>(count, value);
}

/// The error of cuMemGetInfo: the driver allocates small pages for itself.
constexpr std::size_t slack = 32_MiB;

bool about(std::size_t a, std::size_t b) { return (a > b ? a - b : b - a) <= slack; }

} // namespace

TEST_CASE("the default driver is the GPU") {
    CHECK(with_default_driver(
        [](const auto& driver) { return std::is_same_v<std::remove_cvref_t<decltype(driver)>, CudaDriver>; }));
}

TEST_CASE("program 1: the device's memory falls by the size and comes back, three times") {
    Program program;
    const Ledgered books;
    MemorySaver saver{books.driver};
    const std::size_t before = program.free_bytes();
    Buffer<float> kv;
    {
        auto region = saver.region("kv_cache");
        kv = Buffer<float>{region, 1 << 28};
    }
    CHECK(kv.size_bytes() == 1_GiB);
    const float* const address = kv.data();
    const std::size_t active = program.free_bytes();
    CHECK(about(before - active, 1_GiB));

    for (std::uint32_t cycle = 0; cycle < 3; ++cycle) {
        CAPTURE(cycle);
        const Report paused = saver.pause("kv_cache");
        CHECK(paused.released_bytes == 1_GiB);
        CHECK(paused.held_bytes == 0);
        CHECK(about(program.free_bytes() - active, 1_GiB));
        CHECK(books.driver.handle_bytes() == 0);
        CHECK(saver.bytes_to_resume("kv_cache") == 1_GiB);

        const Report resumed = saver.resume("kv_cache");
        CHECK(resumed.mapped_bytes == 1_GiB);
        CHECK(about(program.free_bytes(), active));
        CHECK(kv.data() == address);

        // Readable and writable in full, also by kernels.
        program.fill(kv.data(), 0x11, kv.size_bytes());
        program.add_one(program.stream, kv.data(), 1U << 28U);
        CHECK(program.read(kv.data(), 4) == words(4, 0x11111112));
        CHECK(program.read(kv.data() + (1 << 28) - 4, 4) == words(4, 0x11111112));
    }
    kv.reset();
    saver.close();
    CHECK(about(program.free_bytes(), before));
}

TEST_CASE("many tensors over many extents: each keeps its own pages") {
    Program program;
    const Ledgered books;
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("tensors");
    std::vector<void*> tensors;
    for (std::uint32_t i = 0; i < 700; ++i) tensors.push_back(arena.allocate(3_MiB + 256 * i));
    for (int cycle = 0; cycle < 2; ++cycle) {
        CAPTURE(cycle);
        saver.pause();
        saver.resume();
        for (std::uint32_t i = 0; i < tensors.size(); ++i) {
            must(program.native.fill(reinterpret_cast<CUdeviceptr>(tensors[i]), static_cast<unsigned char>(i),
                                     3_MiB + 256 * i, program.stream),
                 "cuMemsetD8Async");
        }
        program.synchronize();
        std::size_t wrong = 0;
        for (std::uint32_t i = 0; i < tensors.size(); ++i) { // first and last word: no neighbor has overwritten them
            const auto wanted = words(1, (i & 0xFFU) * 0x01010101U);
            const char* bytes = static_cast<const char*>(tensors[i]);
            wrong += program.read(bytes, 1) == wanted ? 0U : 1U;
            wrong += program.read(bytes + 3_MiB + 256 * i - 4, 1) == wanted ? 0U : 1U;
        }
        CHECK(wrong == 0);
    }
    saver.close();
}

TEST_CASE("policies: zero reads as zero, poison shows, everywhere") {
    Program program;
    const Ledgered books;
    MemorySaver saver{books.driver};
    const std::size_t bytes = 200_MiB;
    void* const zero = saver.arena("zero", Zero{}).allocate(bytes);
    void* const poison = saver.arena("poison", Discard{.poison = 0xDB}).allocate(bytes);
    program.fill(zero, 0x77, bytes);
    program.fill(poison, 0x77, bytes);
    saver.pause({"zero", "poison"});
    saver.resume({"zero", "poison"});
    // On a stream that is not ordered after the resume.
    CHECK(program.read(zero, bytes / 4) == words(bytes / 4, 0));
    CHECK(program.read(poison, bytes / 4) == words(bytes / 4, 0xDBDBDBDB));
    saver.close();
}

TEST_CASE("freeing one of two while paused, then resuming, keeps the other; others are not disturbed") {
    Program program;
    const Ledgered books;
    MemorySaver saver{books.driver};
    const Arena paused = saver.arena("paused", Zero{});
    const Arena busy = saver.arena("busy");
    void* const gone = paused.allocate(64_MiB + 1);
    void* const kept = paused.allocate(6'912);
    void* const other = busy.allocate(64_MiB);
    program.fill(kept, 0x22, 6'912);
    program.fill(other, 0x33, 64_MiB);
    saver.pause("paused");
    paused.deallocate(gone);
    void* const meanwhile = paused.allocate(8_MiB); // from a new, active extent
    program.fill(meanwhile, 0x44, 8_MiB);
    const Report resumed = saver.resume("paused");
    CHECK(resumed.mapped_bytes < 64_MiB); // pages without blocks are not mapped
    CHECK(program.read(kept, 6'912 / 4) == words(6'912 / 4, 0));
    CHECK(program.read(meanwhile, 2_MiB) == words(2_MiB, 0x44444444));
    CHECK(program.read(other, 16_MiB) == words(16_MiB, 0x33333333));
    saver.close();
}

TEST_CASE("no room to resume is an error that changes nothing; with room the same call succeeds") {
    Program program;
    const Ledgered books;
    MemorySaver saver{books.driver};
    void* const block = saver.arena("mine", Zero{}).allocate(4_GiB);
    saver.pause("mine");
    {
        MemorySaver greedy{books.driver};
        const Arena all = greedy.arena("all");
        for (std::size_t bytes : {8_GiB, 1_GiB, 64_MiB}) {
            for (;;) {
                try {
                    (void)all.allocate(bytes);
                } catch (const OutOfMemory&) {
                    break;
                }
            }
        }
        const std::size_t handles = books.driver.handle_bytes();
        try {
            saver.resume("mine");
            FAIL_CHECK("there was no room");
        } catch (const OutOfMemory& error) {
            CHECK(error.needed_bytes() == 4_GiB);
            CHECK(error.free_bytes() < 4_GiB);
        }
        CHECK(books.driver.handle_bytes() == handles);
        greedy.close();
    }
    CHECK(saver.resume("mine").mapped_bytes == 4_GiB);
    CHECK(program.read(static_cast<char*>(block) + 4_GiB - 16, 4) == words(4, 0));
    saver.close();
}

TEST_CASE("a thread without a current context, and one with a context of the program's own, can use the saver") {
    const Native native;
    CUcontext before = nullptr;
    must(native.ctx_get(&before), "cuCtxGetCurrent");
    must(native.ctx_set(nullptr), "cuCtxSetCurrent");
    {
        const Ledgered books;
        MemorySaver saver{books.driver};
        const Buffer<int> buffer{saver.arena("tag"), 1 << 20};
        saver.pause();
        saver.resume();
        saver.close();
        CUcontext current = nullptr;
        must(native.ctx_get(&current), "cuCtxGetCurrent");
        CHECK(current == nullptr); // unchanged
    }
    must(native.ctx_set(before), "cuCtxSetCurrent");
}

TEST_CASE("switched off: plain memory, pause and resume do nothing") {
    Program program;
    const Ledgered books;
    MemorySaver off{books.driver, {.enabled = false}};
    Buffer<std::uint32_t> buffer{off.arena("tag"), 1 << 20};
    program.write(buffer.data(), words(1 << 20, 5));
    CHECK(off.pause().released_bytes == 0);
    off.resume();
    CHECK(program.read(buffer.data(), 1 << 20) == words(1 << 20, 5));
    buffer.reset();
    off.close();
}

} // namespace gpu_pause_resume_test
