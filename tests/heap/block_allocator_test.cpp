// The block allocator agrees with a map of every unit for any sequence of operations.
#include "block_model.hpp"
#include "memsaver/heap/block_allocator.hpp"
#include "support/machines.hpp"
#include "support/sampling.hpp"

namespace heap_block_allocator_test {
using namespace block_model;

constexpr auto just_do = [](auto&& call) { call(); };

TEST_CASE("BlockAllocator: random operations against a map of every unit") {
    const test::Sampling& sample = test::sampling();
    for (std::uint64_t seed = 1 + sample.first(3); seed <= 24; seed += sample.stride(3)) {
        CAPTURE(seed);
        Walk walk{seed};
        for (int step = 0; step < 400; ++step) walk.step(just_do);
    }
}

TEST_CASE("BlockAllocator: ranges that are taken out are forgotten, and can be added again in any order") {
    std::uint64_t serials = 0;
    BlockAllocator blocks{serials};
    const Range first{base, unit};
    const Range second{base + unit, unit};
    for (int round = 0; round < 4; ++round) {
        blocks.add(round % 2 == 0 ? first : second, Block::State::live);
        blocks.add(round % 2 == 0 ? second : first, Block::State::live);
        for (const Range& each : {first, second}) {
            REQUIRE(blocks.find(each.address) != nullptr);
            CHECK(blocks.find(each.address)->address == each.address);
            CHECK(blocks.find(each.address)->state == Block::State::live);
        }
        for (const Range& each : {first, second}) {
            blocks.take_out(each.address);
            CHECK(blocks.find(each.address) == nullptr);
        }
        CHECK(blocks.live_blocks() == 0);
    }
    blocks.add(first, Block::State::live);
    blocks.add(second, Block::State::live);
    blocks.take_out(second.address);
    blocks.add({base + 8 * unit, 4 * unit}); // elsewhere: not adjacent to the first one
    blocks.mark_freed(*blocks.find(first.address));
    blocks.reclaim(first.address);
    CHECK(free_ranges(blocks, 0).count({first.address, first.bytes}) == 1);
    CHECK(free_ranges(blocks, 0).size() == 2);
}

TEST_CASE("BlockAllocator: a large alignment is found in a free block that is not the first of its class") {
    std::uint64_t serials = 0;
    BlockAllocator blocks{serials};
    for (std::size_t i = 0; i < 20; ++i) blocks.add({base + unit + 64 * unit * i, 8 * unit}); // badly aligned
    blocks.add({base + 64 * unit * 40, 8 * unit});
    const Block* block = blocks.allocate(8 * unit, 64 * unit, 8 * unit);
    REQUIRE(block != nullptr);
    CHECK(block->address == base + 64 * unit * 40);
    CHECK(blocks.allocate(8 * unit, 64 * unit, 8 * unit) == nullptr);
}

TEST_CASE("BlockAllocator: a block that a graph keeps does not belong to the program, but is saved") {
    std::uint64_t serials = 0;
    BlockAllocator blocks{serials};
    blocks.add({base, 2 * unit});
    const Address kept = blocks.allocate(unit, unit, 100)->address;
    blocks.keep(*blocks.find(kept));
    CHECK(blocks.live_bytes() == 0);
    CHECK(blocks.live_blocks() == 0);
    std::size_t saved = 0;
    blocks.for_each_saved([&](const Block& block) { saved += block.requested; });
    CHECK(saved == 100);
    blocks.mark_freed(*blocks.find(kept));
    CHECK(blocks.live_bytes() == 0);
    blocks.reclaim(kept);
    CHECK(free_ranges(blocks, 0) == Ranges{{base, 2 * unit}});
}
} // namespace heap_block_allocator_test
