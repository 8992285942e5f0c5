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
} // namespace heap_block_allocator_test
