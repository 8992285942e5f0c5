// A lane fills in the order of its own stream; after a failure, none of its work is in flight.
#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/lane.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"
#include "support/reserved.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace backup_lane_test {

using namespace memsaver;
using namespace memsaver::detail;

using Faulty = FaultyDriver<HostDriver>;

/// Two granules of memory on a machine whose work runs only once it is waited for.
struct Pages {
    Pages() {
        REQUIRE(extent.create(driver).ok());
        REQUIRE(extent.map(driver).ok());
        std::fill_n(bytes(), extent.bytes(), static_cast<unsigned char>(1));
    }
    [[nodiscard]] unsigned char* bytes() const { return reinterpret_cast<unsigned char*>(addresses.get().address); }
    [[nodiscard]] Range range(std::size_t first, std::size_t count) const {
        return {addresses.get().address + first, count};
    }
    [[nodiscard]] std::size_t count(unsigned char byte) const {
        return static_cast<std::size_t>(std::count(bytes(), bytes() + extent.bytes(), byte));
    }

    Faulty driver{HostDriver{64_MiB, {.granularity = 64_KiB, .late = true}}};
    Reservation addresses = test::reserved(driver, 128_KiB, 64_KiB);
    test::Backed extent{addresses.get().address, 128_KiB};
};

TEST_CASE("Lane: fills every range, and no byte beside them") {
    const Pages memory;
    Lane lane{memory.driver};
    Ticket ticket =
        lane.fill(std::vector<Range>{memory.range(0, 1), memory.range(100, 50), memory.range(128_KiB - 1, 1)}, 9);
    CHECK(ticket.bytes() == 52);
    CHECK(memory.count(9) == 0); // late: nothing has waited yet
    CHECK(ticket.wait().ok());
    CHECK(memory.count(9) == 52);
    CHECK(memory.count(1) == 128_KiB - 52);
    bool done = false;
    CHECK(ticket.query(done).ok());
    CHECK(done);
}

TEST_CASE("Lane: nothing to fill is done, and opens nothing") {
    const Pages memory;
    Lane lane{memory.driver};
    CHECK(lane.fill({}, 9).bytes() == 0);
    CHECK(lane.fill(std::vector<Range>{memory.range(0, 0)}, 9).bytes() == 0);
    CHECK(memory.driver.calls(Call::open_stream) == 0);
}

TEST_CASE("Lane: a ticket's destructor waits") {
    const Pages memory;
    Lane lane{memory.driver};
    { const Ticket ticket = lane.fill(std::vector<Range>{memory.range(0, 100)}, 9); }
    CHECK(memory.count(9) == 100);
}

TEST_CASE("Lane: a stream that follows a ticket runs after the bytes") {
    const Pages memory;
    OwnedStream stream;
    REQUIRE(stream.open(memory.driver).ok());
    Lane lane{memory.driver};
    std::size_t seen = 0;
    Ticket ticket = lane.fill(std::vector<Range>{memory.range(0, 100)}, 9);
    REQUIRE(ticket.follow(stream.get(), memory.range(0, 100)).ok());
    REQUIRE(memory.driver.inner()
                .enqueue(stream.get(), memory.addresses.get().address, 128_KiB, [&] { seen = memory.count(9); })
                .ok());
    OwnedEvent passed;
    REQUIRE(passed.open(memory.driver).ok());
    REQUIRE(memory.driver.record(passed.get(), stream.get()).ok());
    REQUIRE(memory.driver.wait(passed.get()).ok());
    CHECK(seen == 100);
}

TEST_CASE("Lane: whichever call fails, it throws, everything is closed, and no fill comes later") {
    const std::uint64_t points = sweep(
        {}, [] { return Pages{}; },
        [](Pages& memory) {
            Lane lane{memory.driver};
            Ticket ticket = lane.fill(std::vector<Range>{memory.range(0, 100), memory.range(1000, 100)}, 9);
            check(ticket.wait(), "wait");
        },
        [](Pages& memory, const SweepPoint& point) {
            if (!point.error) return;
            // The pages could be released now: no work uses them.
            CHECK(memory.extent.unmap().ok());
            CHECK_MESSAGE(memory.driver.inner().violations().empty(), point.text());
        });
    CHECK(points >= 6);
}

TEST_CASE("Lane: if even the mark for what was enqueued fails, the device is waited for") {
    Pages memory;
    Lane lane{memory.driver};
    memory.driver.fail({.call = Call::record});
    CHECK_THROWS_AS((void)lane.fill(std::vector<Range>{memory.range(0, 100)}, 9), DriverError);
    CHECK(memory.count(9) == 100);
    CHECK(memory.extent.unmap().ok());
    CHECK(memory.driver.inner().violations().empty());
}

} // namespace backup_lane_test
