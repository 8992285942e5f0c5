// Without host memory, the small containers throw bad_alloc and are unchanged. This file replaces operator new for the
// test program: if it failed less often than it is told to, the numbers of failures here would be wrong.
#include "failing_new.hpp"
#include "memsaver/arena/addresses.hpp"
#include "memsaver/heap/block_allocator.hpp"
#include "memsaver/heap/deferred_frees.hpp"
#include "support/failing_operators.hpp"
#include "support/machines.hpp"

namespace no_memory_bookkeeping_test {
using namespace test;

TEST_CASE("OffsetMap: without memory to grow it keeps its items, and needs none to change them") {
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

TEST_CASE("Addresses: a range that could not be noted is neither taken nor freed") {
    const HostDriver driver{8_MiB};
    Addresses addresses;
    Reservation reservation;
    REQUIRE(reservation.open(driver, 65 * 2_MiB, 2_MiB).ok());
    const Address base = reservation.get().address;
    const auto at = [&](std::size_t unit) { return base + unit * 2_MiB; };
    addresses.add(std::move(reservation), 64 * 2_MiB);
    Address first = 0;
    CHECK(no_memory::sweep([&] { first = addresses.take(16 * 2_MiB, 2_MiB); }, [&] { CHECK(first == 0); }) == 1);
    CHECK(first == base);
    CHECK(addresses.take(48 * 2_MiB, 2_MiB) == at(16));
    no_memory::countdown = 0;
    CHECK_FALSE(addresses.give({at(4), 4 * 2_MiB})); // would split a range in two
    no_memory::countdown = -1;
    CHECK(addresses.take(2_MiB, 2_MiB) == 0);
    CHECK(addresses.give({at(4), 4 * 2_MiB}));
    CHECK(addresses.take(5 * 2_MiB, 2_MiB) == 0);
    CHECK(addresses.take(4 * 2_MiB, 2_MiB) == at(4));
    CHECK(addresses.close().ok());
}

TEST_CASE("DeferredFrees: a block that could not be noted is not kept, and collecting needs no memory") {
    DeferredFrees deferred;
    std::size_t collected = 0;
    for (int i = 0; i < 300; ++i) {
        no_memory::sweep([&] { deferred.after_fence(256, 256, 0); },
                         [&] { CHECK(deferred.fenced_bytes() == static_cast<std::size_t>(i) * 256); });
    }
    no_memory::countdown = 0;
    deferred.collect(1, [&](Address) { collected += 1; });
    no_memory::countdown = -1;
    CHECK(collected == 300);
    CHECK(deferred.fenced_bytes() == 0);
}

TEST_CASE("DeferredFrees: the same for blocks that wait for a stream") {
    DeferredFrees deferred;
    constexpr Address blocks = 100;
    std::size_t over = 0;
    for (Address i = 1; i <= blocks; ++i) {
        const DeferredFrees::Mark mark{reinterpret_cast<HostEvent*>(i), i};
        no_memory::sweep(
            [&] {
                if (deferred.after_stream(i * 256, 256, {}, mark)) ++over;
            },
            [&] { CHECK(deferred.any_waiting() == (i != 1)); });
    }
    CHECK(over == blocks - 16);
    std::vector<Address> passed;
    passed.reserve(2 * blocks);
    no_memory::countdown = 0;
    for (auto asked = deferred.ask(0); asked.mark.event; asked = deferred.ask(0))
        CHECK(deferred.answer(asked, true, [&](Address address) { passed.push_back(address); }));
    no_memory::countdown = -1;
    CHECK(passed.size() == blocks);
    CHECK_FALSE(deferred.any_waiting());
}
} // namespace no_memory_bookkeeping_test
