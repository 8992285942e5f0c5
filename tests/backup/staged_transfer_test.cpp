// Copies through a few pinned buffers, to and from any store.
#include "backup/transfer_support.hpp"
#include "support/machines.hpp"

namespace backup_staged_transfer_test {
using namespace transfer_test;

constexpr std::size_t bytes = 8_MiB + 6912;

struct Setup {
    explicit Setup(std::size_t limit = 8_MiB, unsigned threads = 2)
        : driver{late_machine()}, memory{driver, bytes}, ring{std::make_shared<Ring>(
                                                             driver, Ring::Shape{limit, threads, 32_MiB})} {
        memory.write(1);
    }
    /// Odd blocks, each on its own page, with holes.
    detail::Vector<Piece> pieces() const {
        detail::Vector<Unit> units;
        std::uint64_t location = 4096;
        Address at = memory.address();
        std::size_t left = bytes;
        for (std::size_t size = 6912; left != 0; size = size * 3 + 256) {
            const std::size_t part = std::min(size, left);
            units.push_back({at, location, part});
            at += part;
            left -= part;
            location += align_up(part, Shelf::page) + (size % 1024 == 0 ? 4096 : 0);
        }
        return cut_into_pieces(std::move(units), ring->buffer_bytes(), [](const Unit&, const Unit&) { return false; });
    }
    detail::UniquePtr<Transfer> make(Direction direction, CrewOptions crew) const {
        return staged_transfer({driver, direction, crew, nullptr, {}, {}}, pieces(), shelf, ring);
    }
    Status move(Direction direction) const {
        auto transfer = make(direction, {.threads = 2});
        transfer->start();
        return transfer->wait();
    }
    Faulty driver;
    PlainBytes<> memory;
    Shelf shelf{12_MiB};
    std::shared_ptr<Ring> ring;
};

TEST_CASE("Staged transfer: a failure in the middle ends it, wakes its followers, and leaves the buffers idle") {
    for (const Call call :
         {Call::copy_to_host, Call::record, Call::wait, Call::open_event, Call::map_host, Call::populate_host}) {
        for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
            CAPTURE(call_name(call));
            Setup s{4_MiB, 1};
            auto out = s.make(Direction::out, {.threads = 1});
            const bool of_a_buffer = call == Call::map_host || call == Call::populate_host; // one is enough
            const std::uint64_t nth = of_a_buffer ? 1 : 2;
            s.driver.fail({.call = call, .nth = nth, .lasting = lasting, .kind = StatusKind::out_of_host_memory});
            out->start();
            std::thread follower{[&] { CHECK(!out->follow({}, {s.memory.address() + bytes - 1, 1}).ok()); }};
            CHECK_THROWS_AS((void)out->wait(), OutOfHostMemory);
            follower.join();
            CHECK_THROWS_AS((void)out->wait(), OutOfHostMemory);
            s.driver.heal();
            out.reset();
            s.memory.write(3);
            CHECK(s.move(Direction::out).ok()); // the same buffers
            s.memory.write(4);
            CHECK(s.move(Direction::in).ok());
            CHECK(s.memory.has(3));
            s.ring.reset();
            for (const std::string& text : s.driver.violations()) FAIL_CHECK(text);
            for (const std::string& text : test::host_of(s.driver).violations()) FAIL_CHECK(text);
        }
    }
    for (const Direction direction : {Direction::out, Direction::in}) {
        Setup s;
        CHECK(s.move(Direction::out).ok());
        s.shelf.fail_at = 3;
        CHECK_THROWS_AS((void)s.move(direction), DriverError);
        s.shelf.fail_at = 0;
        CHECK(s.move(Direction::out).ok());
    }
}
} // namespace backup_staged_transfer_test
