// How much memory an arena allocates at once: slightly more than the program needs, in few handles; and how little
// unused memory a resume maps.
#include "support/machines.hpp"

namespace arena_growth_test {
using namespace test;

constexpr std::size_t largest_extent = 1_GiB;

/// An arena on a machine that is large because hardly any memory is touched, and the bytes of each handle that it
/// created.
struct Growing {
    explicit Growing(std::size_t granularity) : driver{HostDriver{96_GiB, {.granularity = granularity}}} {
        driver.on_call([this](const CallRecord& made) {
            if (made.call == Call::create) taken.push_back(made.bytes);
        });
    }
    ~Growing() { driver.on_call({}); }

    const MachineDriver driver;
    std::vector<std::size_t> taken{};
    TaggedArena<MachineDriver> arena{driver, "growing"};
};

TEST_CASE("growth: never more than a sixteenth or 32 MiB ahead, at most the largest extent") {
    for (const std::size_t granularity : {4_KiB, 64_KiB, 2_MiB, 64_MiB}) {
        CAPTURE(granularity);
        Growing growing{granularity};
        std::size_t owned = 0;
        std::size_t last = 0;
        std::size_t seen = 0;
        while (owned < 64_GiB) {
            // Always less than a step, so that the arena chooses how much to allocate.
            (void)growing.arena.allocate(std::max(granularity, owned / 64 / granularity * granularity));
            for (; seen < growing.taken.size(); ++seen) {
                const std::size_t step = growing.taken[seen];
                CAPTURE(owned);
                CHECK((std::has_single_bit(step) || step % 32_MiB == 0));
                CHECK(step >= granularity);
                CHECK(step <= std::max({granularity, std::size_t{32_MiB}, owned / 16}));
                CHECK(step <= std::max(granularity, largest_extent));
                CHECK(step >= last); // steps never shrink
                last = step;
                owned += step;
            }
        }
        CHECK(last == largest_extent);
    }
}

TEST_CASE("growth: a large block takes as few handles as can be, without gaps") {
    for (const std::size_t bytes : {std::size_t{2_MiB}, largest_extent, largest_extent + 2_MiB, 3 * largest_extent}) {
        CAPTURE(bytes);
        Growing growing{2_MiB};
        auto* const block = static_cast<unsigned char*>(growing.arena.allocate(bytes));
        CHECK(growing.taken.size() == (bytes + largest_extent - 1) / largest_extent);
        CHECK(std::accumulate(growing.taken.begin(), growing.taken.end(), std::size_t{0}) == bytes);
        for (const std::size_t piece : growing.taken) {
            CHECK(piece <= largest_extent);
            CHECK(piece % 2_MiB == 0);
        }
        for (std::size_t border = largest_extent; border < bytes; border += largest_extent) {
            write_pattern(growing.driver, block + border - 100, 200, border);
            CHECK(has_pattern(growing.driver, block + border - 100, 200, border));
        }
    }
    Growing coarse{4_GiB}; // a machine whose pages are larger than the largest extent
    (void)coarse.arena.allocate(8_GiB);
    CHECK(coarse.taken == std::vector<std::size_t>{4_GiB, 4_GiB});
}

TEST_CASE("a resume leaves out long dead ranges, and of the shorter ones the longest" * on_machines) {
    const Checked machine;
    TaggedArena<MachineDriver> arena{machine.driver, "holes"};
    std::vector<void*> blocks;
    for (int i = 0; i < 128; ++i) blocks.push_back(arena.allocate(2_MiB));
    const auto free = [&](std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; ++i) arena.deallocate(blocks[i]);
    };
    (void)arena.pause();
    CHECK(arena.bytes_to_resume() == 256_MiB);
    free(10, 1); // less than a sixty-fourth of the rest: not worth another handle
    CHECK(arena.bytes_to_resume() == 256_MiB);
    free(20, 2); // now it is more: the longer hole is released
    CHECK(arena.bytes_to_resume() == 252_MiB);
    free(30, 8); // long enough to be released in any case
    CHECK(arena.bytes_to_resume() == 236_MiB);
    CHECK(arena.resume().mapped_bytes == 236_MiB);
    CHECK(machine.driver.handle_bytes() == 236_MiB);
}

TEST_CASE("growth: where the addresses of a whole step cannot be reserved, a block that fits is allocated") {
    const MachineDriver driver{HostDriver{1_GiB}};
    TaggedArena<MachineDriver> arena{driver, "growing"};
    (void)arena.allocate(208_MiB); // of a segment of 256 MiB
    driver.fail({.call = Call::reserve, .kind = StatusKind::out_of_addresses});
    CHECK_NOTHROW((void)arena.allocate(64_MiB)); // in addresses for no more than that
    (void)arena.allocate(32_MiB);
    driver.fail({.call = Call::reserve, .lasting = Lasting::onwards, .kind = StatusKind::out_of_addresses});
    for (int i = 0; i < 16; ++i) CHECK(arena.allocate(1_MiB) != nullptr);
    CHECK_THROWS_AS((void)arena.allocate(2_MiB), OutOfAddresses);
    CHECK(arena.usage().mapped_bytes == 320_MiB);
}
} // namespace arena_growth_test
