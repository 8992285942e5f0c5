// Fences are numbered in the order in which they begin; a heap frees the blocks that they cover.
#include "memsaver/heap/heaps.hpp"
#include "memsaver/host/host_driver.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace heap_heap_test {

using namespace memsaver;
using namespace memsaver::detail;

TEST_CASE("Fences: numbers from 1, done as far as the last that has finished") {
    Fences fences;
    CHECK(fences.last_begun() == 0);
    CHECK(fences.last_done() == 0);
    CHECK(fences.begin() == 1);
    CHECK(fences.begin() == 2);
    CHECK(fences.last_begun() == 2);
    fences.finish(2);
    CHECK(fences.last_done() == 2);
    fences.finish(1); // began before: no new information
    CHECK(fences.last_done() == 2);
}

TEST_CASE("Fences: threads get numbers of their own, and the last one counts") {
    Fences fences;
    std::vector<std::vector<std::uint64_t>> numbers(4);
    std::vector<std::thread> threads;
    for (auto& own : numbers) {
        threads.emplace_back([&fences, &own] {
            for (int i = 0; i < 1000; ++i) {
                own.push_back(fences.begin());
                fences.finish(own.back());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::uint64_t> all;
    for (const auto& own : numbers) all.insert(all.end(), own.begin(), own.end());
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    CHECK(all.back() == 4000);
    CHECK(fences.last_done() == 4000);
}

TEST_CASE("Heap: collecting makes passed blocks free, and an allocation collects before it is refused") {
    const HostDriver driver{64_MiB};
    Heap heap{0, nullptr, 0};
    heap.blocks.add({0x10000, 1024});
    for (int i = 0; i < 4; ++i) CHECK(heap.blocks.allocate(256, 256, 200) != nullptr);
    Fences fences;
    for (const Address address : {Address{0x10000}, Address{0x10100}, Address{0x10200}}) {
        heap.blocks.mark_freed(*heap.blocks.find(address));
        heap.deferred.after_fence(address, 256, fences.last_begun());
        if (address == 0x10100) CHECK(fences.begin() == 1);
    }
    CHECK(heap.deferred.fenced_bytes() == 768);
    heap.collect(driver, fences);
    CHECK(heap.blocks.free_bytes() == 0);
    CHECK(heap.allocate(driver, fences, 512, 256, 512) == nullptr);
    fences.finish(1);
    const Block* const block = heap.allocate(driver, fences, 512, 256, 512);
    REQUIRE(block != nullptr);
    CHECK(block->address == 0x10000);
    CHECK(heap.deferred.fenced_bytes() == 256); // freed after the fence had begun
}

} // namespace heap_heap_test
