// A lane's copies are marked, and have completed if any of them failed.
#include "backup/transfer_support.hpp"

namespace backup_copy_lane_test {

using namespace transfer_test;

TEST_CASE("CopyLane: copies a piece out and in, on the driver's own lanes") {
    const Faulty driver = late_machine();
    {
        const PlainBytes memory{driver, 1_MiB};
        memory.write(1);
        const CopyLane out{driver, Direction::out};
        const CopyLane in{driver, Direction::in};
        const CopyLane again{driver, Direction::out};
        CHECK(out.stream() == again.stream());
        CHECK(!(out.stream() == in.stream()));
        CHECK(out.driver() == driver);
        CHECK(in.direction() == Direction::in);
        std::vector<std::byte> host(1_MiB);
        // The two halves are in the opposite order on the host.
        const Piece piece{{{memory.address() + 512_KiB, 5000, 512_KiB}, {memory.address(), 5000 + 512_KiB, 512_KiB}}};
        OwnedEvent mark;
        CHECK(out.enqueue(piece, host.data(), 5000, mark).ok());
        CHECK(driver.wait(mark.get()).ok());
        const auto bytes = test::pattern(1_MiB, 1);
        CHECK(std::equal(bytes.begin(), bytes.begin() + 512 * 1024,
                         reinterpret_cast<unsigned char*>(host.data()) + 512_KiB));
        memory.write(2);
        CHECK(in.enqueue(piece, host.data(), 5000, mark).ok()); // the same mark again
        CHECK(driver.wait(mark.get()).ok());
        CHECK(memory.has(1));
    }
    check_clean(driver);
}

TEST_CASE("CopyLane: when one copy or its mark fails, copies that were enqueued have passed") {
    for (const Call call : {Call::open_event, Call::copy_to_host, Call::record}) {
        for (const std::uint64_t nth : {std::uint64_t{1}, std::uint64_t{2}}) {
            if (nth == 2 && call != Call::copy_to_host) continue;
            CAPTURE(call_name(call));
            const Faulty driver = late_machine();
            {
                const PlainBytes memory{driver, 2_MiB};
                memory.write(1);
                const CopyLane lane{driver, Direction::out};
                OwnedEvent mark;
                {
                    std::vector<std::byte> host(2_MiB); // destroyed at once: asan detects later copies
                    const Piece piece{
                        {{memory.address(), 100, 1_MiB}, {memory.address() + 1_MiB, 100 + 1_MiB + 1, 1_MiB - 1}}};
                    driver.fail({.call = call, .nth = nth});
                    CHECK(!lane.enqueue(piece, host.data(), 100, mark).ok());
                    if (call == Call::copy_to_host && nth == 2) {
                        const auto bytes = test::pattern(1_MiB, 1);
                        CHECK(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<unsigned char*>(host.data())));
                    }
                }
            }
            check_clean(driver);
        }
    }
    const Faulty driver = late_machine();
    driver.fail({.call = Call::lane});
    CHECK_THROWS_AS((CopyLane{driver, Direction::in}), DriverError);
}

} // namespace backup_copy_lane_test
