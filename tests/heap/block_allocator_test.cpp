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
} // namespace heap_block_allocator_test
