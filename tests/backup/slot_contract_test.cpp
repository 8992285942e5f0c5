// The contract of a slot that keeps bytes, for every policy: out, in, in order, cancelled, with each driver call
// failing.
#include "backup/backup_support.hpp"
#include "backup/transfer_support.hpp"
#include "support/each_of.hpp"
#include "support/sampling.hpp"

namespace backup_slot_contract_test {
using namespace transfer_test;

constexpr std::size_t bytes = 2_MiB + 100'608; // a whole piece and a part

/// Two blocks in plain memory, and a slot for them.
struct Kept {
    explicit Kept(const AnyPolicy& policy) : slot{policy.open(driver)} { memory.write(1); }
    ~Kept() {
        driver.heal();
        CHECK(slot->close().ok());
    }

    [[nodiscard]] Range first() const { return {memory.address(), 256}; }
    [[nodiscard]] Range second() const { return {memory.address() + 256, bytes - 256}; }
    [[nodiscard]] LiveSet live(Done& done) const {
        LiveSet set{{{memory.address(), bytes}}, [a = first(), b = second()] {
                        return std::vector<LiveBlock>{{a.address, a.bytes, 1}, {b.address, b.bytes, 2}};
                    }};
        set.progress = done.sink();
        set.first = {second()};
        return set;
    }
    /// Returns whether all bytes are out.
    bool out() {
        Done done;
        slot->prepare(live(done));
        return slot->save(live(done)).wait().ok();
    }
    bool in() {
        Done done;
        return slot->restore(live(done)).wait().ok();
    }

    Faulty driver = late_machine();
    PlainBytes<> memory{driver, bytes};
    detail::UniquePtr<AnySlot> slot;
};

/// Runs `body`; an Error counts as a failure.
bool succeeds(const std::function<bool()>& body) {
    try {
        return body();
    } catch (const Error&) {
        return false;
    }
}

/// Fails the n-th driver call of `body` for a sample of n until it makes fewer; after each failure, no byte is lost.
void fail_each(const test::NamedPolicy& keeper, bool out_first, const std::function<bool(Kept&)>& body) {
    CAPTURE(keeper.name);
    const test::Sampling sample = test::sampling().of(keeper.name);
    for (std::size_t nth = 1 + sample.first(8);; nth += sample.stride(8)) {
        CAPTURE(nth);
        Kept kept{keeper.policy};
        if (out_first) REQUIRE(kept.out());
        if (out_first) kept.memory.write(2);
        kept.driver.fail({.nth = nth});
        const bool right = succeeds([&] { return body(kept); });
        const bool injected = kept.driver.injected() != 0;
        kept.driver.heal();
        if (!right && !out_first) { // a failed save leaves the memory as it was
            REQUIRE(kept.memory.has(1));
            kept.slot->outdated();
            REQUIRE(kept.out());
        }
        if (!out_first) kept.memory.write(2);         // what a failure before the end hides must not be wrong bytes
        if (!right || !out_first) REQUIRE(kept.in()); // saved bytes survive a failed restore
        REQUIRE(kept.memory.has(1));
        if (!injected) return;
    }
}

TEST_CASE("slot contract: bytes are saved and restored, in part, behind a stream and repeatedly") {
    Kept kept{test::each_of(test::keepers()).policy};
    REQUIRE(kept.out());
    CHECK(kept.slot->backed_up_bytes() != 0);
    for (int round = 0; round < 2; ++round) {
        kept.memory.write(2);
        Done done;
        Ticket ticket = kept.slot->restore(kept.live(done));
        CHECK(ticket.bytes() == bytes);
        CHECK(ticket.wait_for(kept.second()).ok());
        CHECK(ticket.follow(StreamRef{}, kept.first()).ok());
        CHECK(ticket.wait().ok());
        bool arrived = false;
        CHECK(ticket.query(arrived).ok());
        CHECK(arrived);
        CHECK(done.bytes() == bytes);
        CHECK(kept.memory.has(1));
    }
    CHECK(kept.slot->resumed().ok());
    kept.slot->invalidate();
}

TEST_CASE("slot contract: a cancelled restore keeps the saved bytes, a cancelled save the memory's") {
    Kept kept{test::each_of(test::keepers()).policy};
    Done done;
    const auto cancel = [](Ticket ticket) {
        ticket.cancel();
        (void)succeeds([&] { return ticket.wait().ok(); });
    };
    cancel(kept.slot->save(kept.live(done)));
    CHECK(kept.memory.has(1));
    kept.slot->outdated();
    REQUIRE(kept.out());
    kept.memory.write(2);
    cancel(kept.slot->restore(kept.live(done)));
    REQUIRE(kept.in());
    CHECK(kept.memory.has(1));
}

TEST_CASE("slot contract: a driver call of a save fails, and no byte is lost") {
    for (const test::NamedPolicy& keeper : test::keepers({.threads = 1}))
        fail_each(keeper, false, [](Kept& kept) { return kept.out(); });
}

TEST_CASE("slot contract: a driver call of a restore fails, and no byte is lost") {
    for (const test::NamedPolicy& keeper : test::keepers({.threads = 1}))
        fail_each(keeper, true, [](Kept& kept) { return kept.in(); });
}
} // namespace backup_slot_contract_test
