// Which heap an address belongs to, before, during and after its chunk is leased.
#include "memsaver/arena/heap_set.hpp"
#include "memsaver/driver/host_driver.hpp"

#include <doctest/doctest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace arena_heap_set_test {

using namespace memsaver;

using Set = HeapSet<HostDriver>;
constexpr Address base = 0x100000;
constexpr std::size_t chunk = 4096;

TEST_CASE("HeapSet: a chunk is the central heap's until it is leased, and again afterwards") {
    Set set{{base, 16 * chunk}, chunk};
    Heap<HostDriver>& shard = *set.shards.back();
    for (std::size_t i = 0; i < 16; ++i) CHECK(&set.heap_of(base + i * chunk) == &set.central);
    set.lease(base + 3 * chunk, shard);
    CHECK(set.leases == 1);
    CHECK(&set.heap_of(base + 3 * chunk) == &shard);
    CHECK(&set.heap_of(base + 4 * chunk - 1) == &shard);
    CHECK(&set.heap_of(base + 3 * chunk - 1) == &set.central);
    CHECK(&set.heap_of(base + 4 * chunk) == &set.central);
    CHECK(set.leased(set.central, base + 3 * chunk));
    CHECK_FALSE(set.leased(set.central, base + 4 * chunk));
    CHECK_FALSE(set.leased(shard, base + 3 * chunk)); // what lies in it is the program's
    set.end_lease(base + 3 * chunk);
    CHECK(set.leases == 0);
    CHECK(&set.heap_of(base + 3 * chunk) == &set.central);
}

TEST_CASE("HeapSet: all locks are taken, and none is left behind") {
    Set set{{base, chunk}, chunk};
    const auto held = [&](std::mutex& mutex) {
        bool yes = false;
        std::thread{[&] {
            yes = !mutex.try_lock();
            if (!yes) mutex.unlock();
        }}.join();
        return yes;
    };
    {
        const auto locks = set.lock_all();
        for (const auto& shard : set.shards) CHECK(held(shard->mutex));
        CHECK(held(set.central.mutex));
    }
    for (const auto& shard : set.shards) CHECK_FALSE(held(shard->mutex));
    CHECK_FALSE(held(set.central.mutex));
}

TEST_CASE("HeapSet: a thread's shard is always the same, and serial numbers are of one heap only") {
    Set set{{base, chunk}, chunk};
    CHECK(&set.shard_of_this_thread() == &set.shard_of_this_thread());
    CHECK(&set.shard_of_this_thread() != &set.central);
    std::set<std::uint64_t> tops;
    const auto top_of = [&](Heap<HostDriver>& heap) {
        heap.blocks.add({base, chunk});
        tops.insert(heap.blocks.allocate(256, 256, 1)->serial >> 56U);
    };
    top_of(set.central);
    for (const auto& shard : set.shards) top_of(*shard);
    CHECK(tops.size() == Set::shard_count + 1);
}

} // namespace arena_heap_set_test
