// After Zero the bytes read as zero, whatever fresh pages hold.
#include "memsaver/backup/zero.hpp"

#include "backup/slot_support.hpp"

namespace backup_zero_test {

using namespace slot_test;

static_assert(Backup<Zero, Machine> && Backup<Zero, HostDriver>);

TEST_CASE("Zero: fills with zero") {
    const Memory memory;
    auto slot = Zero{}.open(memory.driver);
    CHECK(slot.save(memory.live()).bytes() == 0);
    Ticket ticket = slot.restore(memory.live());
    CHECK(ticket.bytes() == Memory::bytes);
    CHECK(ticket.wait().ok());
    CHECK(memory.count(0) == Memory::bytes);
    CHECK(slot.backed_up_bytes() == 0);
    CHECK(Zero{} == Zero{});
    CHECK(Zero{}.name() == "zero");
}

} // namespace backup_zero_test
