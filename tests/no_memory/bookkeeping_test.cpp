// Without host memory, the small containers throw bad_alloc and are unchanged. This file replaces operator new for the
// test program: if it failed less often than it is told to, the numbers of failures here would be wrong.
#include "failing_new.hpp"
#include "memsaver/arena/addresses.hpp"
#include "memsaver/heap/frees.hpp"
#include "support/failing_operators.hpp"
#include "support/machines.hpp"

namespace no_memory_bookkeeping_test {
using namespace test;

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

struct SomeFrees {
    const AnyDriver driver = HostDriver{64_MiB};
    Frees frees{driver};
    std::mutex mutex;
    Frees::Lock lock{mutex};
    std::vector<Address> collected;

    SomeFrees() { collected.reserve(300); }
    /// Without host memory.
    void collect() {
        no_memory::countdown = 0;
        (void)frees.collect(lock, [&](Address address) { collected.push_back(address); });
        no_memory::countdown = -1;
        CHECK_FALSE(frees.any_waiting());
        frees.clear(lock);
    }
};

TEST_CASE_FIXTURE(SomeFrees, "Frees: a block that could not be noted is not kept, and collecting needs no memory") {
    for (Address i = 1; i <= 300; ++i) {
        no_memory::sweep([&] { frees.after_fence(i * 256, 256); }, [&] { CHECK(frees.any_waiting() == (i != 1)); });
    }
    REQUIRE(frees.drain().ok());
    collect();
    CHECK(collected.size() == 300);
}

TEST_CASE_FIXTURE(SomeFrees, "Frees: the same for blocks that wait for a stream") {
    for (Address i = 1; i <= 100; ++i) {
        Frees::Place place{frees};
        REQUIRE(place.record({}).ok());
        no_memory::sweep([&] { frees.after_stream(i * 256, 256, {}, place); },
                         [&] { CHECK(frees.any_waiting() == (i != 1)); });
        frees.give_back(place);
    }
    collect();
    CHECK(collected.size() == 100);
}
} // namespace no_memory_bookkeeping_test
