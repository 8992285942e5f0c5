// Blocks are freed in the order of the work that may touch them, and never twice.
#include "heap/elsewhere.hpp"
#include "memsaver/heap/deferred_frees.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace heap_deferred_frees_test {

using namespace memsaver;
using namespace memsaver::detail;
using test::Elsewhere;

using Machine = FaultyDriver<HostDriver>;
using Addresses = std::vector<Address>;

Addresses collected(DeferredFrees& deferred, const Machine& driver, std::uint64_t last_done) {
    Addresses addresses;
    deferred.collect(driver, last_done, [&](Address address) { addresses.push_back(address); });
    std::sort(addresses.begin(), addresses.end());
    return addresses;
}

/// Work that blocks until it is released.
struct HeldStream {
    explicit HeldStream(const Machine& on) : driver{on} {
        REQUIRE(stream.open(driver).ok());
        hold();
    }
    void hold() const {
        REQUIRE(driver.inner().hold(stream.get()).ok());
        REQUIRE(driver.inner().enqueue(stream.get(), [] {}).ok());
    }
    /// Waits only for this stream's work.
    void finish_alone() const {
        REQUIRE(driver.inner().let_go(stream.get()).ok());
        EventRef passed; // of the inner machine: not counted
        REQUIRE(driver.inner().open_event(stream.get(), passed).ok());
        REQUIRE(driver.inner().record(passed, stream.get()).ok());
        REQUIRE(driver.inner().wait(passed).ok());
        REQUIRE(driver.inner().close_event(passed).ok());
    }
    void finish() const {
        REQUIRE(driver.inner().let_go(stream.get()).ok());
        REQUIRE(driver.drain().ok());
    }

    Machine driver;
    OwnedStream stream;
};

TEST_CASE("DeferredFrees: a block waits for a fence that began after it was freed") {
    const Machine driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    deferred.after_fence(0x100, 256, 0);
    deferred.after_fence(0x200, 512, 1); // fence 1 had begun, so it does not cover this block
    deferred.after_fence(0x300, 1024, 1);
    CHECK(deferred.fenced_bytes() == 1792);
    CHECK(collected(deferred, driver, 0).empty());
    CHECK(collected(deferred, driver, 1) == Addresses{0x100});
    CHECK(deferred.fenced_bytes() == 1536);
    CHECK(collected(deferred, driver, 1).empty());
    CHECK(collected(deferred, driver, 5) == Addresses{0x200, 0x300});
    CHECK(deferred.fenced_bytes() == 0);
}

TEST_CASE("DeferredFrees: a block waits for its own stream and for no other") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const HeldStream one{driver};
        const HeldStream two{driver};
        DeferredFrees deferred;
        CHECK(deferred.after_stream(driver, 0x100, 256, one.stream.get()).ok());
        CHECK(deferred.after_stream(driver, 0x200, 256, two.stream.get()).ok());
        CHECK(deferred.after_stream(driver, 0x300, 256, one.stream.get()).ok());
        CHECK(deferred.fenced_bytes() == 0);
        CHECK(collected(deferred, driver, 99).empty());
        REQUIRE(driver.inner().let_go(one.stream.get()).ok());
        OwnedEvent passed;
        REQUIRE(passed.open(driver).ok());
        REQUIRE(driver.record(passed.get(), one.stream.get()).ok());
        REQUIRE(driver.wait(passed.get()).ok());
        CHECK(collected(deferred, driver, 99) == Addresses{0x100, 0x300});
        CHECK(collected(deferred, driver, 99).empty());

        // Events are reused; they then mark the work submitted to the stream since.
        one.hold();
        const std::uint64_t opened = driver.calls(Call::open_event);
        CHECK(deferred.after_stream(driver, 0x400, 256, one.stream.get()).ok());
        CHECK(driver.calls(Call::open_event) == opened);
        CHECK(collected(deferred, driver, 99).empty());
        REQUIRE(driver.inner().let_go(one.stream.get()).ok());
        two.finish();
        CHECK(collected(deferred, driver, 99) == Addresses{0x200, 0x400});
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("DeferredFrees: a block that waits for another device's work waits for nothing else") {
    const Machine driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    const auto first = std::make_shared<Elsewhere>();
    const auto second = std::make_shared<Elsewhere>();
    deferred.after_mark(0x100, first);
    deferred.after_mark(0x200, second);
    deferred.after_mark(0x300, first);
    deferred.after_mark(0x400, second);
    CHECK(deferred.fenced_bytes() == 0);
    CHECK(collected(deferred, driver, 99).empty());
    second->done = true;
    second->status = {StatusKind::gone, 1, "lost"};
    CHECK(collected(deferred, driver, 99).empty()); // not known to have completed
    second->status = {};
    CHECK(collected(deferred, driver, 99) == Addresses{0x200, 0x400});
    CHECK(second.use_count() == 1);
    Addresses gone;
    deferred.collect_if([](Address address) { return address == 0x300; }, [&](Address a) { gone.push_back(a); });
    CHECK(gone == Addresses{0x300});
    first->done = true;
    CHECK(collected(deferred, driver, 99) == Addresses{0x100});
    CHECK(collected(deferred, driver, 99).empty());
}

TEST_CASE("DeferredFrees: a failing driver call changes nothing") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const HeldStream work{driver};
        DeferredFrees deferred;
        for (const Call call : {Call::open_event, Call::record}) {
            driver.fail({.call = call});
            CHECK_FALSE(deferred.after_stream(driver, 0x100, 256, work.stream.get()).ok());
            driver.heal();
        }
        CHECK(deferred.after_stream(driver, 0x200, 256, work.stream.get()).ok());
        work.finish();
        driver.fail({.call = Call::query, .lasting = Lasting::onwards}); // not known to have completed
        CHECK(collected(deferred, driver, 1).empty());
        driver.heal();
        CHECK(collected(deferred, driver, 1) == Addresses{0x200});

        // With a spare event: if it cannot be recorded, a new one is tried.
        driver.fail({.call = Call::record});
        CHECK(deferred.after_stream(driver, 0x300, 256, work.stream.get()).ok());
        driver.fail({.call = Call::record, .lasting = Lasting::onwards});
        CHECK_FALSE(deferred.after_stream(driver, 0x400, 256, work.stream.get()).ok());
        driver.heal();
        REQUIRE(driver.drain().ok());
        CHECK(collected(deferred, driver, 1) == Addresses{0x300});
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("DeferredFrees: what was freed in a capture comes back once its graph is let go and a fence has passed") {
    const Machine driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    deferred.keep(0x100, 256, 0); // of an unknown graph: never freed
    deferred.keep(0x200, 256, 1);
    deferred.keep(0x300, 512, 2);
    deferred.keep(0x400, 256, 1);
    CHECK(collected(deferred, driver, 99).empty());
    Addresses gone;
    const auto collect_if = [&](Address wanted) {
        gone.clear();
        deferred.collect_if([&](Address address) { return wanted == 0 || address == wanted; },
                            [&](Address address) { gone.push_back(address); });
        return gone;
    };
    CHECK(collect_if(0).empty());
    const auto kept = [&] {
        Addresses addresses;
        deferred.for_each_kept([&](Address address) { addresses.push_back(address); });
        return addresses;
    };
    CHECK(kept() == Addresses{0x100, 0x200, 0x300, 0x400});

    Addresses told;
    const auto let_go = [&](std::uint64_t graph, std::size_t most) {
        return deferred.end_graph(graph, most, 7, [&](Address address) { told.push_back(address); });
    };
    CHECK(let_go(3, 10) == 0);
    CHECK(let_go(1, 1) == 1); // a few at a time
    CHECK(let_go(1, 10) == 1);
    CHECK(let_go(1, 10) == 0);
    CHECK(told == Addresses{0x200, 0x400});
    CHECK(kept() == Addresses{0x100, 0x300});
    CHECK(deferred.fenced_bytes() == 512);
    CHECK(collected(deferred, driver, 7).empty()); // that fence had begun
    CHECK(collect_if(0x400) == Addresses{0x400});  // paused: no work can touch it
    CHECK(collected(deferred, driver, 8) == Addresses{0x200});
    CHECK(deferred.fenced_bytes() == 0);
    CHECK(let_go(2, 10) == 1);
    CHECK(collect_if(0) == Addresses{0x300});
    CHECK(collected(deferred, driver, 99).empty());
}

TEST_CASE("DeferredFrees: blocks that no work can touch any more come back at once, the others in their time") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const HeldStream work{driver};
        DeferredFrees deferred;
        for (Address i = 1; i <= 6; ++i) deferred.after_fence(i * 0x100, 256, i / 2);
        for (Address i = 7; i <= 12; ++i) CHECK(deferred.after_stream(driver, i * 0x100, 256, work.stream.get()).ok());
        Addresses gone;
        deferred.collect_if([](Address address) { return address % 0x200 == 0; },
                            [&](Address address) { gone.push_back(address); });
        std::sort(gone.begin(), gone.end());
        CHECK(gone == Addresses{0x200, 0x400, 0x600, 0x800, 0xa00, 0xc00});
        CHECK(deferred.fenced_bytes() == 3 * 256);
        CHECK(collected(deferred, driver, 2) == Addresses{0x100, 0x300});
        work.finish();
        CHECK(collected(deferred, driver, 99) == Addresses{0x500, 0x700, 0x900, 0xb00});
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("DeferredFrees: what waits for a fence is counted, and which fence is the first to help") {
    const Machine driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    CHECK(deferred.first_fence() == 0);
    deferred.after_fence(0x100, 256, 4);
    deferred.after_fence(0x200, 512, 5);
    deferred.keep(0x300, 1024, 1);
    CHECK(deferred.fenced_bytes() == 768);
    CHECK(deferred.first_fence() == 5);
    CHECK(deferred.end_graph(1, 9, 6, [](Address) {}) == 1);
    CHECK(deferred.fenced_bytes() == 1792);
    CHECK(collected(deferred, driver, 5) == Addresses{0x100});
    CHECK(deferred.fenced_bytes() == 1536);
    CHECK(deferred.first_fence() == 6);
    deferred.clear();
    CHECK(deferred.fenced_bytes() == 0);
    CHECK(deferred.first_fence() == 0);
    CHECK_FALSE(deferred.any_waiting());
}

TEST_CASE("DeferredFrees: each stream's marks are asked about up to the first that has not been passed") {
    const Machine driver{HostDriver{1_GiB}};
    {
        const HeldStream one{driver};
        const HeldStream two{driver};
        DeferredFrees deferred;
        for (Address i = 1; i <= 100; ++i) {
            REQUIRE(
                deferred.after_stream(driver, i * 0x10000, 0x10000, i % 2 == 0 ? one.stream.get() : two.stream.get())
                    .ok());
        }
        const auto queries = [&] {
            const std::uint64_t before = driver.calls(Call::query);
            const std::size_t count = collected(deferred, driver, 99).size();
            return std::pair{driver.calls(Call::query) - before, count};
        };
        CHECK(queries() == std::pair{std::uint64_t{2}, std::size_t{0}}); // one per stream
        CHECK(queries() == std::pair{std::uint64_t{2}, std::size_t{0}});
        const std::size_t marks = driver.outstanding().events;
        one.finish_alone();
        const auto [asked, count] = queries();
        CHECK(count == 50);
        CHECK(asked <= marks); // all of one's, and the first of the other's
        CHECK(queries() == std::pair{std::uint64_t{1}, std::size_t{0}});
        two.finish();
        CHECK(queries().second == 50);
        CHECK(queries().first == 0); // nothing waits
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("DeferredFrees: the number of events grows with the logarithm of what waits, and few are kept to spare") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const HeldStream work{driver};
        DeferredFrees deferred;
        std::size_t last = 0;
        for (Address i = 1; i <= 20'000; ++i) {
            REQUIRE(deferred.after_stream(driver, i * 0x100, 256, work.stream.get()).ok());
            if (i == 10'000) last = driver.outstanding().events;
        }
        CHECK(last <= 160);                              // 32, and 16 each time the number of waiting blocks doubles
        CHECK(driver.outstanding().events <= last + 17); // it has doubled once
        CHECK(driver.calls(Call::record) == 20'000);     // each block has a later one
        work.finish();
        CHECK(collected(deferred, driver, 0).size() == 20'000);
        CHECK(driver.outstanding().events <= 64);
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("DeferredFrees: a mark that moved on still covers what it covered, and no block comes before its work") {
    const Machine driver{HostDriver{64_MiB}};
    const HeldStream work{driver};
    DeferredFrees deferred;
    for (Address i = 1; i <= 500; ++i) REQUIRE(deferred.after_stream(driver, i * 0x100, 256, work.stream.get()).ok());
    work.finish();
    work.hold(); // later frees wait longer
    for (Address i = 501; i <= 540; ++i) REQUIRE(deferred.after_stream(driver, i * 0x100, 256, work.stream.get()).ok());
    const Addresses first = collected(deferred, driver, 0);
    CHECK(first.size() <= 500);
    CHECK(first.size() >= 400); // moving a mark delays at most a sixteenth
    CHECK((first.empty() || first.back() <= 500 * 0x100));
    work.finish();
    CHECK(first.size() + collected(deferred, driver, 0).size() == 540);
}

TEST_CASE("DeferredFrees: a block goes back to the work of its own stream at once, and to no other") {
    const Machine driver{HostDriver{64_MiB}};
    {
        const HeldStream one{driver};
        const HeldStream two{driver};
        DeferredFrees deferred;
        REQUIRE(deferred.after_stream(driver, 0x1000, 1024, one.stream.get()).ok());
        REQUIRE(deferred.after_stream(driver, 0x2000, 1024, one.stream.get()).ok());
        REQUIRE(deferred.after_stream(driver, 0x3000, 2048, two.stream.get()).ok());
        const auto any = [](Address) { return true; };
        CHECK(deferred.take(StreamRef{}, 1024, any) == 0);
        CHECK(deferred.take(two.stream.get(), 1024, any) == 0); // twice as large as requested
        CHECK(deferred.take(one.stream.get(), 2048, any) == 0); // too small
        CHECK(deferred.take(one.stream.get(), 512, any) == 0);
        CHECK(deferred.take(one.stream.get(), 1024, [](Address) { return false; }) == 0);
        CHECK(deferred.take(one.stream.get(), 1024, [](Address a) { return a == 0x2000; }) == 0x2000);
        CHECK(deferred.take(one.stream.get(), 900, any) == 0x1000); // slightly larger than requested
        CHECK(deferred.take(one.stream.get(), 1024, any) == 0);     // in use
        REQUIRE(deferred.after_stream(driver, 0x1000, 1024, one.stream.get()).ok());
        one.finish_alone();
        CHECK(collected(deferred, driver, 0) == Addresses{0x1000}); // once; the other one is the program's
        two.finish();
        CHECK(collected(deferred, driver, 0) == Addresses{0x3000});
        CHECK_FALSE(deferred.any_waiting());
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("DeferredFrees: blocks that go back and forth in a busy stream leave no marks behind") {
    const Machine driver{HostDriver{64_MiB}};
    const HeldStream work{driver};
    DeferredFrees deferred;
    const auto any = [](Address) { return true; };
    for (Address i = 1; i <= 10; ++i)
        REQUIRE(deferred.after_stream(driver, i << 20U, i << 12U, work.stream.get()).ok());
    for (int step = 0; step < 1000; ++step) {
        for (Address i = 1; i <= 8; ++i) REQUIRE(deferred.take(work.stream.get(), i << 12U, any) == i << 20U);
        for (Address i = 1; i <= 8; ++i) {
            REQUIRE(deferred.after_stream(driver, i << 20U, i << 12U, work.stream.get()).ok());
        }
    }
    CHECK(driver.outstanding().events <= 50); // not 8,000
    work.finish();
    CHECK(collected(deferred, driver, 0).size() == 10);
}

} // namespace heap_deferred_frees_test
