// The block allocator agrees with a map of every unit for any sequence of operations.
#include "memsaver/heap/block_allocator.hpp"

#include "block_model.hpp"

#include <cstdint>
#include <vector>

namespace heap_block_allocator_test {

using namespace block_model;

constexpr auto just_do = [](auto&& call) { call(); };

TEST_CASE("BlockAllocator: random operations against a map of every unit") {
    for (const std::size_t seam : {std::size_t{0}, Walk::granule * unit}) {
        for (std::uint64_t seed = 1; seed <= 12; ++seed) {
            CAPTURE(seam);
            CAPTURE(seed);
            Walk walk{seed, seam};
            for (int step = 0; step < 400; ++step) walk.step(just_do);
        }
    }
}

TEST_CASE("BlockAllocator: an empty one has nothing") {
    BlockAllocator blocks;
    CHECK(blocks.allocate(unit, unit, 1) == nullptr);
    CHECK(blocks.find(base) == nullptr);
    blocks.shut_all();
    blocks.open_all();
    CHECK(Snapshot{blocks} == Snapshot{blocks});
    CHECK(blocks.free_bytes() == 0);
}

TEST_CASE("BlockAllocator: serial numbers start above the first one and are not used again") {
    BlockAllocator blocks{0, std::uint64_t{7} << 56U};
    blocks.add({base, 4 * unit});
    const Address first = blocks.allocate(unit, unit, 10)->address;
    CHECK(blocks.find(first)->serial == (std::uint64_t{7} << 56U) + 1);
    blocks.mark_freed(*blocks.find(first));
    blocks.reclaim(first);
    const Block* again = blocks.allocate(unit, unit, 10);
    CHECK(again->address == first);
    CHECK(again->serial == (std::uint64_t{7} << 56U) + 2);
}

TEST_CASE("BlockAllocator: a block that was given up is neither the program's nor anybody else's") {
    BlockAllocator blocks;
    blocks.add({base, unit});
    REQUIRE(blocks.allocate(unit, unit, 200) != nullptr);
    CHECK(blocks.live_bytes() == 200);
    blocks.mark_freed(*blocks.find(base));
    CHECK(blocks.live_bytes() == 0);
    CHECK(blocks.live_blocks() == 0);
    CHECK(blocks.free_bytes() == 0);
    CHECK(blocks.find(base)->state == Block::State::freed);
    CHECK(blocks.allocate(unit, unit, 1) == nullptr);
    CHECK(blocks.reclaim(base) == Range{base, unit});
    CHECK(blocks.find(base) == nullptr);
    CHECK(blocks.allocate(unit, unit, 1) != nullptr);
}

TEST_CASE("BlockAllocator: what is taken out is forgotten, and can be added again in any order") {
    BlockAllocator blocks;
    const Range first{base, unit};
    const Range second{base + unit, unit};
    for (int round = 0; round < 4; ++round) {
        blocks.add_live(round % 2 == 0 ? std::vector{first, second} : std::vector{second, first});
        for (const Range& each : {first, second}) {
            REQUIRE(blocks.find(each.address) != nullptr);
            CHECK(blocks.find(each.address)->address == each.address);
            CHECK(blocks.find(each.address)->state == Block::State::live);
        }
        blocks.reserve_to_take_out(2);
        for (const Range& each : {first, second}) {
            blocks.take_out(each.address);
            CHECK(blocks.find(each.address) == nullptr);
        }
        CHECK(blocks.live_blocks() == 0);
    }
    blocks.add_live({first, second});
    blocks.reserve_to_take_out(1);
    blocks.take_out(second.address);
    blocks.add({base + 8 * unit, 4 * unit}); // elsewhere: not adjacent to the first one
    blocks.mark_freed(*blocks.find(first.address));
    CHECK(blocks.reclaim(first.address) == first);
    CHECK(blocks.free_bytes() == 5 * unit);
}

TEST_CASE("BlockAllocator: a large alignment is found in a free block that is not the first of its class") {
    BlockAllocator blocks;
    for (std::size_t i = 0; i < 20; ++i) blocks.add({base + unit + 64 * unit * i, 8 * unit}); // badly aligned
    blocks.add({base + 64 * unit * 40, 8 * unit});
    const Block* block = blocks.allocate(8 * unit, 64 * unit, 8 * unit);
    REQUIRE(block != nullptr);
    CHECK(block->address == base + 64 * unit * 40);
    CHECK(blocks.allocate(8 * unit, 64 * unit, 8 * unit) == nullptr);
}

TEST_CASE("BlockAllocator: shut memory serves nobody, and what the sides kept apart grows together") {
    BlockAllocator blocks;
    blocks.add({base, 64 * unit});
    blocks.set_shut({{base + 16 * unit, 16 * unit}});
    CHECK(free_ranges(blocks, 0, Side::open) == Ranges{{base, 16 * unit}, {base + 32 * unit, 32 * unit}});
    CHECK(free_ranges(blocks, 0, Side::shut) == Ranges{{base + 16 * unit, 16 * unit}});
    CHECK(blocks.allocate(33 * unit, unit, 1) == nullptr);
    SUBCASE("when all is opened") {
        blocks.open_all();
        CHECK(free_ranges(blocks, 0, Side::open) == Ranges{{base, 64 * unit}});
    }
    SUBCASE("when all is shut") {
        blocks.shut_all();
        CHECK(free_ranges(blocks, 0, Side::shut) == Ranges{{base, 64 * unit}});
        CHECK(blocks.allocate(unit, unit, 1) == nullptr);
    }
    SUBCASE("new memory is open beside it") {
        blocks.shut_all();
        blocks.add({base + 64 * unit, 8 * unit});
        CHECK(free_ranges(blocks, 0, Side::open) == Ranges{{base + 64 * unit, 8 * unit}});
        CHECK(blocks.side(base) == Side::shut);
        CHECK(blocks.side(base + 64 * unit) == Side::open);
    }
}

} // namespace heap_block_allocator_test
