// How much more memory than it uses an arena keeps, over cycles of random frees and allocations, also while it is
// paused.
#include "support/machines.hpp"

namespace model_fragmentation_test {
using namespace test;

TEST_CASE("after a resume, little mapped memory is unused: sizes from 256 B to 64 MiB, 4 GiB in all") {
    constexpr std::uint64_t seed = 20260701;
    MESSAGE("seed " << seed);
    std::mt19937_64 random{seed};
    MemorySaver saver{HostDriver{64_GiB}};
    const Arena arena = saver.arena("random");
    std::vector<std::pair<void*, std::size_t>> blocks;
    std::size_t used = 0;
    const auto churn = [&](double share) {
        for (auto n = static_cast<std::size_t>(share * static_cast<double>(blocks.size())); n != 0; --n) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            arena.deallocate(blocks.back().first);
            used -= blocks.back().second;
            blocks.pop_back();
        }
        while (used < 4_GiB) {
            const auto bytes = static_cast<std::size_t>(std::exp2(std::uniform_real_distribution{8.0, 26.0}(random)));
            blocks.emplace_back(arena.allocate(bytes), bytes);
            used += bytes;
        }
    };
    double worst = 0;
    for (int cycle = 0; cycle < 100; ++cycle) {
        churn(0.2);
        saver.pause();
        churn(0.1);
        saver.resume();
        const ArenaUsage usage = arena.usage();
        REQUIRE(usage.used_bytes == used);
        worst = std::max(worst, static_cast<double>(usage.mapped_bytes) / static_cast<double>(used));
    }
    MESSAGE("worst: " << worst << " mapped for each byte used");
    CHECK(worst <= 1.12);
}
} // namespace model_fragmentation_test
