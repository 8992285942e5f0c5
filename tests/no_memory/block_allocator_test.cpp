// Without host memory, a block allocator throws bad_alloc and is unchanged.
#include "failing_new.hpp"
#include "heap/block_model.hpp"
#include "memsaver/heap/block_allocator.hpp"

namespace no_memory_block_allocator_test {
using namespace block_model;

TEST_CASE("BlockAllocator: a call that has no memory changes nothing, and works once there is some") {
    int failures = 0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        Walk walk{seed};
        const auto act = [&](auto&& call) {
            const Snapshot before{walk.blocks};
            failures += no_memory::sweep(call, [&] {
                CHECK(Snapshot{walk.blocks} == before);
                walk.model.check(walk.blocks, 0);
            });
        };
        for (int step = 0; step < 200; ++step) walk.step(act);
    }
    CHECK(failures > 100);
}
} // namespace no_memory_block_allocator_test
