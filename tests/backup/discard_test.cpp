// Discard touches nothing; its test mode overwrites everything that is resumed. Zero fills with zero.
#include "memsaver/backup/discard.hpp"

#include "backup/slot_support.hpp"

namespace backup_discard_test {

using namespace slot_test;

static_assert(Backup<Discard> && Backup<Zero>);

TEST_CASE("Discard: the bytes are undefined, so nothing is done") {
    const Pages memory;
    auto slot = Discard{}.open(memory.driver);
    CHECK(slot.restore(memory.live()).bytes() == 0);
    CHECK(memory.driver.calls(Call::fill) == 0);
    CHECK(Discard{}.name() == "discard");
}

TEST_CASE("Discard: poison shows bytes that were wrongly assumed to survive") {
    const Pages memory;
    const Discard policy{.poison = static_cast<unsigned char>(0xDE)};
    CHECK(policy.name() == "discard (poisoned)");
    auto slot = policy.open(memory.driver);
    CHECK(slot.restore(memory.live()).wait().ok());
    CHECK(memory.count(0xDE) == Pages::bytes);
}

TEST_CASE("Discard: a poison of zero is a poison") {
    const Pages memory;
    auto slot = Discard{.poison = static_cast<unsigned char>(0)}.open(memory.driver);
    CHECK(slot.restore(memory.live()).wait().ok());
    CHECK(memory.count(0) == Pages::bytes);
}

TEST_CASE("Discard: equal if the poison is") {
    CHECK(Discard{} == Discard{});
    CHECK(Discard{} != Discard{.poison = static_cast<unsigned char>(0)});
    CHECK(Discard{.poison = static_cast<unsigned char>(1)} != Discard{.poison = static_cast<unsigned char>(2)});
}

TEST_CASE("Zero: the bytes read as zero, whatever fresh pages hold") {
    const Pages memory;
    auto slot = Zero{}.open(memory.driver);
    CHECK(slot.save(memory.live()).bytes() == 0);
    Ticket ticket = slot.restore(memory.live());
    CHECK(ticket.bytes() == Pages::bytes);
    CHECK(ticket.wait().ok());
    CHECK(memory.count(0) == Pages::bytes);
    CHECK(slot.backed_up_bytes() == 0);
    CHECK(Zero{} == Zero{});
    CHECK(Zero{}.name() == "zero");
}

} // namespace backup_discard_test
