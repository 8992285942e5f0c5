// Pause and resume on a GPU, end to end: device memory is released and mapped again, addresses and contents are
// correct.
#include "gpu/gpu_support.hpp"

#include <type_traits>

namespace gpu_pause_resume_test {
using namespace gpu_test;

std::vector<std::uint32_t> words(std::size_t count, std::uint32_t value) {
    return std::vector<std::uint32_t>(count, value);
}

/// The error of cuMemGetInfo: the driver allocates small pages for itself.
constexpr std::size_t slack = 32_MiB;

bool about(std::size_t a, std::size_t b) { return (a > b ? a - b : b - a) <= slack; }

TEST_CASE("the default driver is the GPU") {
    CHECK(with_default_driver(
        [](const auto& driver) { return std::is_same_v<std::remove_cvref_t<decltype(driver)>, CudaDriver>; }));
}

TEST_CASE_FIXTURE(OnGpu, "program 1: the device's memory falls by the size and comes back, three times") {
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
} // namespace gpu_pause_resume_test
