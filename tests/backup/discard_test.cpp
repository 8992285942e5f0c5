// Discard's test mode overwrites everything that is resumed; Zero fills with zero. The sweeps fail each of their calls.
#include "backup/slot_support.hpp"
#include "memsaver/backup/discard.hpp"

namespace backup_discard_test {
using namespace slot_test;

static_assert(Backup<Discard> && Backup<Zero> && BackupSlot<FillSlot>);

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

} // namespace backup_discard_test
