// Discard touches nothing; its test mode overwrites everything that is resumed. Zero fills with zero. Fills run in the
// order of their own stream; after a failure, none is in flight.
#include "backup/slot_support.hpp"
#include "memsaver/backup/discard.hpp"

namespace backup_discard_test {
using namespace slot_test;

Range range(const Pages& memory, std::size_t first, std::size_t count) {
    return {memory.addresses.get().address + first, count};
}

static_assert(Backup<Discard> && Backup<Zero> && BackupSlot<FillSlot>);

TEST_CASE("Discard: the bytes are undefined, so no driver call is made") {
    const Pages memory;
    const std::uint64_t calls = memory.driver.calls();
    {
        auto slot = Discard{}.open(memory.driver);
        slot.prepare(memory.live());
        CHECK(slot.save(memory.live()).bytes() == 0);
        CHECK(slot.restore(memory.live()).bytes() == 0);
        slot.resumed();
    }
    CHECK(memory.driver.calls() == calls);
    CHECK(memory.count(1) == Pages::bytes);
    CHECK(Discard{}.name() == "discard");
}

TEST_CASE("Discard: poison, zero too, shows bytes that were wrongly assumed to survive") {
    for (const unsigned char poison : {static_cast<unsigned char>(0xDE), static_cast<unsigned char>(0)}) {
        const Pages memory;
        const Discard policy{.poison = poison};
        CHECK(policy.name() == "discard (poisoned)");
        auto slot = policy.open(memory.driver);
        CHECK(slot.restore(memory.live()).wait().ok());
        CHECK(memory.count(poison) == Pages::bytes);
        LiveSet handed = memory.live(); // pages that another tag gets
        handed.handed_on = handed.extents;
        CHECK(slot.save(handed).bytes() == Pages::bytes);
    }
}

TEST_CASE("Zero: whole extents read as zero, whatever fresh pages hold, without listing the blocks in them") {
    const Pages memory;
    {
        auto slot = Zero{}.open(memory.driver);
        slot.prepare(memory.live());
        LiveSet handed = memory.live();
        handed.handed_on = handed.extents;
        CHECK(slot.save(handed).bytes() == 0);
        CHECK(memory.driver.calls(Call::fill) == 0);
        Ticket ticket = slot.restore(memory.live());
        CHECK(ticket.bytes() == Pages::bytes);
        CHECK(ticket.wait().ok());
        CHECK(memory.count(0) == Pages::bytes);
        CHECK(slot.backed_up_bytes() == 0);
        slot.resumed();
        slot.forget(1);
        slot.invalidate();
        CHECK(slot.restore(memory.live()).bytes() == Pages::bytes); // it may be repeated
    }
    CHECK(memory.driver.outstanding().streams == 0);
    CHECK(memory.driver.outstanding().events == 0);
    CHECK(Zero{} == Zero{});
    CHECK(Zero{}.name() == "zero");
}

TEST_CASE("FillSlot: fills every range, and no byte beside them") {
    const Pages memory;
    FillSlot slot{memory.driver, static_cast<unsigned char>(9)};
    Ticket ticket =
        slot.restore({{range(memory, 0, 1), range(memory, 100, 50), range(memory, Pages::bytes - 1, 1)}, {}});
    CHECK(ticket.bytes() == 52);
    CHECK(memory.count(9) == 0); // late: nothing has waited yet
    CHECK(ticket.wait().ok());
    CHECK(memory.count(9) == 52);
    CHECK(memory.count(1) == Pages::bytes - 52);
    bool done = false;
    CHECK(ticket.query(done).ok());
    CHECK(done);
}

TEST_CASE("FillSlot: nothing to fill is done, and opens nothing") {
    const Pages memory;
    FillSlot slot{memory.driver, static_cast<unsigned char>(9)};
    CHECK(slot.restore({}).bytes() == 0);
    CHECK(slot.restore({{range(memory, 0, 0)}, {}}).bytes() == 0);
    CHECK(memory.driver.calls(Call::open_stream) == 0);
}

TEST_CASE("FillSlot: a stream that follows a ticket runs after the bytes") {
    const Pages memory;
    OwnedStream stream;
    REQUIRE(stream.open(memory.driver).ok());
    FillSlot slot{memory.driver, static_cast<unsigned char>(9)};
    std::size_t seen = 0;
    Ticket ticket = slot.restore({{range(memory, 0, 100)}, {}});
    REQUIRE(ticket.follow(stream.get(), range(memory, 0, 100)).ok());
    REQUIRE(memory.driver.inner()
                .enqueue(stream.get(), memory.addresses.get().address, Pages::bytes, [&] { seen = memory.count(9); })
                .ok());
    OwnedEvent passed;
    REQUIRE(passed.open(memory.driver).ok());
    REQUIRE(memory.driver.record(passed.get(), stream.get()).ok());
    REQUIRE(memory.driver.wait(passed.get()).ok());
    CHECK(seen == 100);
}

TEST_CASE("FillSlot: whichever call fails, it throws, everything is closed, and no fill comes later") {
    const std::uint64_t points = sweep(
        {}, [] { return Pages{}; },
        [](Pages& memory) {
            FillSlot slot{memory.driver, static_cast<unsigned char>(9)};
            Ticket ticket = slot.restore({{range(memory, 0, 100), range(memory, 1000, 100)}, {}});
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
} // namespace backup_discard_test
