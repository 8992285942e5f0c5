// Without host memory, the small containers throw bad_alloc and are unchanged.
#include "memsaver/arena/pages.hpp"
#include "memsaver/heap/block_allocator.hpp"
#include "memsaver/heap/deferred_frees.hpp"
#include "memsaver/host/host_driver.hpp"

#include "failing_new.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace no_memory_bookkeeping_test {

using namespace memsaver;
using namespace memsaver::detail;

TEST_CASE("OffsetMap: without memory to grow it keeps what it has, and needs none to change") {
    OffsetMap map;
    int failures = 0;
    for (std::uint32_t i = 1; i <= 500; ++i) {
        failures += no_memory::sweep([&] { map.reserve(i); },
                                     [&] {
                                         for (std::uint32_t k = 1; k < i; ++k) REQUIRE(map.find(Address{k} << 8U) == k);
                                     });
        no_memory::countdown = 0;
        map.insert(Address{i} << 8U, i);
        map.erase(Address{i} << 8U);
        map.insert(Address{i} << 8U, i);
        no_memory::countdown = -1;
    }
    CHECK(failures > 3);
}

TEST_CASE("AddressSpace: what could not be noted is not taken, and not given back") {
    AddressSpace space{{0x1000, 64}};
    Address first = 0;
    CHECK(no_memory::sweep([&] { first = space.take(16, 1); }, [&] { CHECK(first == 0); }) == 1);
    CHECK(first == 0x1000);
    CHECK(space.take(48, 1) == 0x1010);
    CHECK(no_memory::sweep([&] { space.give({0x1004, 4}); }, [&] { CHECK(space.take(1, 1) == 0); }) == 1);
    CHECK(space.take(5, 1) == 0);
    CHECK(space.take(4, 1) == 0x1004);
    // Returning a whole piece, or the end of one, needs no memory.
    no_memory::countdown = 0;
    space.give({0x1020, 0x20});
    space.give({0x1010, 0x10});
    no_memory::countdown = -1;
    CHECK(space.take(48, 1) == 0x1010);
}

TEST_CASE("Sides: room is all that is ever asked for") {
    Sides sides;
    CHECK(no_memory::sweep([&] { sides.reserve_more(4); }, [&] { CHECK(sides.list().empty()); }) == 1);
    no_memory::countdown = 0;
    sides.add({0x100, 0x100}, Side::open);
    sides.add({0x200, 0x100}, Side::shut);
    sides.remove({0x180, 0x20});
    sides.remove({0x1f0, 0x80});
    no_memory::countdown = -1;
    CHECK(sides.list().size() == 3);
}

TEST_CASE("DeferredFrees: a block that could not be noted is not kept, and collecting needs no memory") {
    const AnyDriver driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    std::size_t collected = 0;
    // Queries of the machine may need memory themselves, so no driver call is made here.
    for (int i = 0; i < 300; ++i) {
        no_memory::sweep([&] { deferred.after_fence(256, 256, 0); },
                         [&] { CHECK(deferred.fenced_bytes() == static_cast<std::size_t>(i) * 256); });
    }
    no_memory::countdown = 0;
    deferred.collect(driver, 1, [&](Address) { collected += 1; });
    no_memory::countdown = -1;
    CHECK(collected == 300);
    CHECK(deferred.fenced_bytes() == 0);
}

TEST_CASE("DeferredFrees: the same for blocks that wait for a stream") {
    const AnyDriver driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    constexpr Address blocks = 100;
    for (Address i = 1; i <= blocks; ++i) {
        for (int failures = 0;; ++failures) {
            no_memory::countdown = failures;
            bool done = false;
            try { // the machine returns a status if it has no memory
                done = deferred.after_stream(driver, i * 256, 256, {}).ok();
            } catch (const std::bad_alloc&) {
            }
            no_memory::countdown = -1;
            if (done) break;
        }
    }
    REQUIRE(driver.drain().ok());
    std::vector<Address> passed;
    passed.reserve(2 * blocks);
    // Even if a collect can allocate nothing, each block is returned exactly once.
    for (int round = 0; passed.size() < blocks && round < 3; ++round) {
        no_memory::countdown = 0;
        deferred.collect(driver, 0, [&](Address address) { passed.push_back(address); });
        no_memory::countdown = -1;
    }
    CHECK(passed.size() == blocks);
    deferred.collect(driver, 0, [&](Address address) { passed.push_back(address); });
    CHECK(passed.size() == blocks);
}

} // namespace no_memory_bookkeeping_test
