// Blocks are freed in the order of the work that may touch them, and never twice.
#include "memsaver/heap/deferred_frees.hpp"
#include "support/machines.hpp"

#include <list>

namespace heap_deferred_frees_test {
using namespace test;
using test::HeldStream;
using Machine = FaultyDriver<HostDriver>;
using Addresses = std::vector<Address>;
using Mark = DeferredFrees::Mark;
using Question = DeferredFrees::Question;

/// Opens, records, queries and closes events as a heap does.
struct Fixture {
    ~Fixture() {
        while (const EventRef event = deferred.clear()) close(event);
        CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    }
    void close(EventRef event) const {
        if (event) REQUIRE(driver.close_event(event).ok());
    }
    Mark marked(StreamRef stream) {
        Mark mark = deferred.begin_mark();
        if (!mark.event) REQUIRE(driver.open_event(stream, mark.event).ok());
        REQUIRE(driver.record(mark.event, stream).ok());
        return mark;
    }
    void after_stream(Address address, std::size_t bytes, StreamRef stream) {
        close(deferred.after_stream(address, bytes, stream, marked(stream)));
    }
    Addresses collected(std::uint64_t last_done) {
        Addresses addresses;
        const auto reclaim = [&](Address address) { addresses.push_back(address); };
        deferred.collect(last_done, reclaim);
        for (std::size_t i = deferred.streams(); i-- > 0;) {
            for (bool passed = true; passed && i < deferred.streams();) {
                const Question asked = deferred.ask(i);
                CHECK_FALSE(asked.elsewhere);
                if (!asked.mark.event) break;
                passed = false;
                (void)driver.query(asked.mark.event, passed);
                close(deferred.answer(asked, passed, reclaim));
            }
        }
        std::sort(addresses.begin(), addresses.end());
        return addresses;
    }
    Addresses gone(FunctionRef<bool(Address)> which) {
        Addresses addresses;
        deferred.collect_if(which, [&](Address address) { addresses.push_back(address); });
        std::sort(addresses.begin(), addresses.end());
        return addresses;
    }

    Machine driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
};

TEST_CASE("DeferredFrees: a stream has sixteen marks, however much waits, and few events are kept to spare") {
    Fixture f;
    const HeldStream work{f.driver};
    for (Address i = 1; i <= 20'000; ++i) f.after_stream(i * 0x100, 256, work.get());
    CHECK(f.driver.outstanding().events <= 17);    // and one to spare
    CHECK(f.driver.calls(Call::record) == 20'000); // each block has a later one
    work.finish();
    CHECK(f.collected(0).size() == 20'000);
    std::list<HeldStream> streams;
    for (int i = 0; i < 100; ++i) streams.emplace_back(f.driver);
    Address at = 0;
    for (const HeldStream& each : streams) f.after_stream(++at * 0x100, 256, each.get());
    CHECK(f.driver.outstanding().events >= 100);
    CHECK(f.deferred.streams() >= 100);
    for (const HeldStream& each : streams) each.finish();
    CHECK(f.collected(0).size() == 100);
    CHECK(f.driver.outstanding().events <= 64);
    CHECK(f.deferred.streams() <= 16);
}

TEST_CASE("DeferredFrees: threads whose events are recorded in one order and added in another free nothing early") {
    Fixture f;
    const HeldStream work{f.driver};
    const auto add = [&](Address address, const Mark& mark) {
        f.close(f.deferred.after_stream(address, 256, work.get(), mark));
    };
    const Mark first = f.deferred.begin_mark();
    CHECK_FALSE(first.event);
    const Mark second = f.marked(work.get()); // covers the first block, too: it was numbered before
    add(0x200, second);
    SUBCASE("the later event covers both") {
        add(0x100, {f.marked(work.get()).event, first.number});
        CHECK(f.driver.outstanding().events == 2);
        CHECK(f.collected(0).empty());
        work.finish();
        CHECK(f.collected(0) == Addresses{0x100, 0x200});
    }
    SUBCASE("if that has passed, the earlier one is queried") {
        work.finish();
        CHECK(f.collected(0) == Addresses{0x200});
        work.hold();
        add(0x100, {f.marked(work.get()).event, first.number});
        CHECK(f.collected(0).empty());
        work.finish();
        CHECK(f.collected(0) == Addresses{0x100});
    }
}

TEST_CASE("DeferredFrees: a mark that is being queried belongs to the thread that queries it, and may be joined or "
          "discarded meanwhile") {
    Fixture f;
    const HeldStream work{f.driver};
    const auto add = [&](Address from, Address to) {
        for (Address i = from; i <= to; ++i) f.after_stream(i * 0x100, 256, work.get());
    };
    add(1, 3);
    const Question asked = f.deferred.ask(0);
    CHECK(asked.mark.event);
    const Question second = f.deferred.ask(0);
    CHECK(second.elsewhere);
    CHECK_FALSE(second.mark.event);
    Addresses freed;
    const auto answer = [&](bool passed) {
        f.close(f.deferred.answer(asked, passed, [&](Address address) { freed.push_back(address); }));
    };
    SUBCASE("not passed: it is the first mark again") {
        answer(false);
        CHECK(freed.empty());
        CHECK(f.deferred.ask(0).mark.event == asked.mark.event);
        answer(false);
    }
    SUBCASE("passed: it and its block go") {
        answer(true);
        CHECK(freed == Addresses{0x100});
    }
    SUBCASE("joined to the next one") {
        add(4, 300);
        SUBCASE("and passed: its blocks are free") {
            answer(true);
            CHECK(freed == Addresses{0x100});
        }
        SUBCASE("and not passed") {
            answer(false);
            CHECK(freed.empty());
        }
        work.finish();
        CHECK(freed.size() + f.collected(0).size() == 300);
    }
    SUBCASE("discarded") {
        while (const EventRef event = f.deferred.clear()) f.close(event);
        answer(true);
        CHECK(freed.empty());
    }
    work.finish();
}

TEST_CASE("DeferredFrees: however many blocks wait for a stream, few are examined to find one of the right size") {
    Fixture f;
    const HeldStream work{f.driver};
    for (Address i = 1; i <= 10'000; ++i) f.after_stream(i << 20U, 256 * (1 + i % 200), work.get());
    int looks = 0;
    const auto none = [&](Range) {
        looks += 1;
        return false;
    };
    CHECK(f.deferred.take(work.get(), 25'600, none) == 0);
    CHECK(looks <= 128);                  // 32 of each class of sizes
    for (Address i = 1; i <= 1000; ++i) { // every size is found until it is used up
        REQUIRE(f.deferred.take(work.get(), 256 * (1 + i % 200), [](Range) { return true; }) != 0);
    }
    work.finish();
    CHECK(f.collected(0).size() == 9000);
}
} // namespace heap_deferred_frees_test
