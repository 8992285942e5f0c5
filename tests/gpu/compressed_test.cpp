// Compressed backups on a GPU, through nvCOMP: weights shrink by a third and are restored bit by bit.
// tests/backup/compressed_test.cpp tests everything that is independent of nvCOMP, on every machine.
#include "gpu/gpu_support.hpp"
#include "memsaver/backup/compressed.hpp"
#include "support/machines.hpp"

extern bool gpu_case_skipped; // in main.cpp

namespace gpu_compressed_test {
using namespace gpu_test;

bool no_nvcomp() {
    static const std::string why = NvcompLibrary::load().problem;
    if (!why.empty()) {
        MESSAGE("skipped: " << why);
        gpu_case_skipped = true;
    }
    return !why.empty();
}

/// Returns bf16 values, normally distributed with sigma 0.02.
std::vector<unsigned char> weights(std::size_t bytes) {
    std::mt19937 random{7};
    std::normal_distribution<float> normal{0.0F, 0.02F};
    std::vector<unsigned char> made(bytes);
    for (std::size_t at = 0; at + 1 < bytes; at += 2) {
        const float value = normal(random);
        std::memcpy(made.data() + at, reinterpret_cast<const unsigned char*>(&value) + 2, 2);
    }
    return made;
}

TEST_CASE("compressed: bf16 weights take two thirds, and come back as they were") {
    if (no_nvcomp()) return;
    Program program;
    const Watched driver{CudaDriver{0}};
    constexpr std::size_t bytes = 96_MiB + 512;
    const std::vector<unsigned char> expected = weights(bytes);
    for (const Coding coding : {Coding::halves, Coding::bytes}) {
        MemorySaver saver{driver};
        const Arena arena = saver.arena("weights", Compressed<HostBackup>{.coding = coding});
        void* const block = arena.allocate(bytes);
        test::write_bytes(driver, block, expected);
        saver.prepare("weights");
        for (int cycle = 0; cycle < 3; ++cycle) {
            (void)saver.pause("weights");
            const std::size_t kept = saver.usage().begin()->backed_up_bytes;
            MESSAGE("kept " << format_bytes(kept) << " of " << format_bytes(bytes));
            CHECK(kept < bytes / 100 * (coding == Coding::halves ? 72 : 95));
            CHECK(saver.usage().begin()->mapped_bytes == 0);
            const std::size_t need = saver.bytes_to_resume("weights");
            CHECK(saver.resume("weights").mapped_bytes == need);
            CHECK(test::read_bytes(driver, block, bytes) == expected);
        }
    }
    CHECK(driver.everything_given_back());
}
} // namespace gpu_compressed_test
