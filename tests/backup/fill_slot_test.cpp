// A fill slot keeps nothing: it fills the resumed extents, or does not touch them.
#include "memsaver/backup/discard.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include "backup/slot_support.hpp"

#include <doctest/doctest.h>

namespace backup_fill_slot_test {

using namespace slot_test;

static_assert(BackupSlot<FillSlot>);

TEST_CASE("FillSlot: fills whole extents, without listing the blocks in them") {
    const Pages memory;
    {
        FillSlot slot{memory.driver, static_cast<unsigned char>(0xAB)};
        slot.prepare(memory.live());
        CHECK(slot.save(memory.live()).bytes() == 0);
        CHECK(memory.driver.calls(Call::fill) == 0);
        Ticket ticket = slot.restore(memory.live());
        CHECK(ticket.bytes() == Pages::bytes);
        CHECK(ticket.wait().ok());
        CHECK(memory.count(0xAB) == Pages::bytes);
        CHECK(slot.backed_up_bytes() == 0);
        slot.resumed();
        slot.forget(1);
        slot.invalidate();
        CHECK(slot.restore(memory.live()).bytes() == Pages::bytes); // it may be repeated
    }
    CHECK(memory.driver.outstanding().streams == 0);
    CHECK(memory.driver.outstanding().events == 0);
}

TEST_CASE("FillSlot: without a byte it makes no driver call at all") {
    const Pages memory;
    const std::uint64_t calls = memory.driver.calls();
    {
        FillSlot slot{memory.driver, std::nullopt};
        slot.prepare(memory.live());
        CHECK(slot.save(memory.live()).bytes() == 0);
        CHECK(slot.restore(memory.live()).bytes() == 0);
        slot.resumed();
    }
    CHECK(memory.driver.calls() == calls);
    CHECK(memory.count(1) == Pages::bytes);
}

} // namespace backup_fill_slot_test
