// Random operations compared with a simple model, and what a thousand cycles leave behind.
#include "backup/backup_support.hpp"
#include "support/machines.hpp"
#include "support/player.hpp"
#include "support/random.hpp"
#include "support/sampling.hpp"

#include <malloc.h>

namespace model_random_operations_test {
using namespace test;

/// The host memory of this process. A snapshot taken at construction. Checks nothing under sanitizers, which keep freed
/// memory.
struct ProcessMemory {
    /// Checks that memory has not grown since: malloc has allocated at most `heap_slack` bytes more.
    void check_not_grown(std::size_t heap_slack) const {
        if (test::sanitized) return;
        const ProcessMemory now;
        INFO("heap " << heap_ << " B, then " << now.heap_ << " B; resident " << format_bytes(resident_) << ", then "
                     << format_bytes(now.resident_));
        if (on_cuda()) { // a GPU's driver allocates memory of its own
            CHECK(now.resident_ <= resident_ + 64_MiB);
        } else {
            CHECK(now.heap_ <= heap_ + heap_slack);
            CHECK(now.resident_ <= resident_ + 8_MiB);
        }
    }

private:
    static std::size_t heap() {
#if defined(__GLIBC_PREREQ) && __GLIBC_PREREQ(2, 33)
        const auto all = ::mallinfo2();
        return all.uordblks + all.hblkhd;
#else
        return 0;
#endif
    }
    static std::size_t resident() {
        (void)::malloc_trim(0);
        std::ifstream statm{"/proc/self/statm"};
        std::size_t pages = 0;
        statm >> pages >> pages;
        return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    }

    std::size_t heap_ = heap();
    std::size_t resident_ = resident();
};

TEST_CASE("random operations" * on_machines) {
    for (std::uint64_t seed = 1 + sampling().first(3); seed <= 3; seed += sampling().stride(3)) {
        CAPTURE(seed);
        MESSAGE("seed " << seed);
        const Checked machine;
        Random random{seed};
        Player<Random> player{random, machine.driver};
        const auto play = [&] {
            for (int i = 0; i < 1100; ++i) player.step();
            player.end();
        };
        CHECK_NOTHROW(play());
    }
}

// A thousand cycles with random allocation and freeing in between, also while paused. Mapped memory and the memory of
// the process have bounds independent of the number of cycles. The bounds are wide: blocks do not move, and most of
// them here are smaller than a granule, which each may hold open. The slack covers the growth step (at most 32 MiB at
// this size) and the memory that chunks of small blocks hold open.
TEST_CASE("a thousand cycles leave nothing behind" * on_quick) {
    constexpr std::size_t slack = 48_MiB;
    const Checked machine;
    const std::size_t free_before = machine.free_bytes();
    Random random{7};
    MESSAGE("seed 7");
    double sum = 0;
    std::size_t most_used = 0;
    std::size_t most_mapped = 0;
    {
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("tag");
        std::vector<std::pair<void*, std::size_t>> blocks;
        std::size_t used = 0;
        const auto churn = [&](std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t bytes = random.below(8) == 0 ? 1 + random.below(16_MiB) : 1 + random.below(1_MiB);
                if (used + bytes <= 160_MiB && random.below(5) < 3) {
                    blocks.emplace_back(arena.allocate(bytes), bytes);
                    used += bytes;
                    most_used = std::max(most_used, used);
                } else if (!blocks.empty()) {
                    std::swap(blocks[random.below(blocks.size())], blocks.back());
                    arena.deallocate(blocks.back().first);
                    used -= blocks.back().second;
                    blocks.pop_back();
                }
            }
        };
        while (used < 100_MiB) churn(1);
        std::optional<ProcessMemory> warm;
        for (int cycle = 0; cycle < 1000; ++cycle) {
            if (cycle == 500) warm.emplace(); // the number of blocks has reached its maximum
            churn(6);
            (void)saver.pause("tag");
            churn(4);
            (void)saver.resume("tag");
            (void)saver.trim();
            const ArenaUsage row = arena.usage();
            CHECK(row.used_bytes == used);
            CHECK(row.mapped_bytes == machine.driver.handle_bytes());
            most_mapped = std::max(most_mapped, row.mapped_bytes);
            sum += static_cast<double>(row.mapped_bytes) / static_cast<double>(used);
            REQUIRE(machine.driver.outstanding().handles <= 64);
        }
        warm->check_not_grown(256_KiB);
        MESSAGE("most used " << format_bytes(most_used) << ", most mapped " << format_bytes(most_mapped)
                             << ", on average " << sum / 1000 << " mapped for each byte used");
        CHECK(most_mapped <= 2 * most_used + slack); // fragmentation_test.cpp: 1.1 for typical sizes of programs
        for (const auto& [pointer, bytes] : blocks) arena.deallocate(pointer);
        (void)saver.trim();
        CHECK(machine.driver.handle_bytes() == 0);
    }
    CHECK(about(machine.free_bytes(), free_before));
}

// The same blocks, and a few new ones each time: the backup of freed blocks must be freed too, wherever it was.
TEST_CASE("many cycles that keep bytes leave nothing behind" * on_quick) {
    const auto known = keepers({.directory = quick_directory(), .threads = 1});
    for (std::size_t which = sampling().first(3); which < known.size(); which += sampling().stride(3)) {
        const auto& keeper = known[which];
        CAPTURE(keeper.name);
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("tag", keeper.policy);
        void* const stays = arena.allocate(100'000);
        write_pattern(machine.driver, stays, 100'000, 1);
        std::optional<ProcessMemory> warm;
        std::size_t host_bytes = 0;
        Random random{11};
        for (int cycle = 0; cycle < 130; ++cycle) {
            if (cycle == 100) {
                warm.emplace();
                host_bytes = machine.driver.host_bytes();
            }
            std::vector<void*> blocks;
            for (int i = 0; i < 20; ++i) blocks.push_back(arena.allocate(1 + random.below(60'000)));
            (void)saver.pause();
            for (std::size_t i = 0; i < 10; ++i) arena.deallocate(blocks[i], already_idle);
            (void)saver.resume();
            for (std::size_t i = 10; i < 20; ++i) arena.deallocate(blocks[i], already_idle);
        }
        warm->check_not_grown(32_KiB);
        CHECK(machine.driver.host_bytes() <= host_bytes);
        CHECK(has_pattern(machine.driver, stays, 100'000, 1));
        CHECK(arena.usage().blocks == 1);
        arena.deallocate(stays);
    }
}
} // namespace model_random_operations_test
