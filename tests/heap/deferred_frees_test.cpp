// What blocks that wait for streams cost, however many they are.
#include "memsaver/heap/deferred_frees.hpp"
#include "support/machines.hpp"

#include <list>

namespace heap_deferred_frees_test {
using namespace test;
using test::HeldStream;

/// Opens, records, queries and closes events as a heap does.
struct Fixture {
    ~Fixture() {
        while (const EventRef event = deferred.clear()) close(event);
        CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    }
    void close(EventRef event) const {
        if (event) REQUIRE(driver.close_event(event).ok());
    }
    void after_stream(Address address, StreamRef stream) {
        DeferredFrees::Mark mark{{}, ++numbers};
        REQUIRE(driver.open_event(stream, mark.event).ok());
        REQUIRE(driver.record(mark.event, stream).ok());
        close(deferred.after_stream(address, 256, stream, mark));
    }
    /// Returns the number of blocks.
    std::size_t collected() {
        std::size_t blocks = 0;
        const auto reclaim = [&](Address) { blocks += 1; };
        for (std::size_t i = deferred.streams(); i-- > 0;) {
            for (bool passed = true; passed && i < deferred.streams();) {
                const DeferredFrees::Question asked = deferred.ask(i);
                if (!asked.mark.event) break;
                passed = false;
                (void)driver.query(asked.mark.event, passed);
                close(deferred.answer(asked, passed, reclaim));
            }
        }
        return blocks;
    }

    FaultyDriver<HostDriver> driver{HostDriver{64_MiB}};
    DeferredFrees deferred;
    std::uint64_t numbers = 0;
};

TEST_CASE_FIXTURE(Fixture, "DeferredFrees: a stream has sixteen marks, however much waits") {
    const HeldStream work{driver};
    for (Address i = 1; i <= 20'000; ++i) after_stream(i * 0x100, work.get());
    CHECK(driver.outstanding().events <= 16);
    CHECK(driver.calls(Call::record) == 20'000); // each block has a later one
    work.finish();
    CHECK(collected() == 20'000);
    std::list<HeldStream> streams;
    for (int i = 0; i < 100; ++i) streams.emplace_back(driver);
    Address at = 0;
    for (const HeldStream& each : streams) after_stream(++at * 0x100, each.get());
    CHECK(driver.outstanding().events >= 100);
    CHECK(deferred.streams() >= 100);
    for (const HeldStream& each : streams) each.finish();
    CHECK(collected() == 100);
    CHECK(driver.outstanding().events == 0);
    CHECK(deferred.streams() <= 16);
}
} // namespace heap_deferred_frees_test
