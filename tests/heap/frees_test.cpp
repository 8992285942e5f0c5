// What blocks that wait for streams cost, however many they are.
#include "memsaver/heap/frees.hpp"
#include "support/machines.hpp"

#include <list>

namespace heap_frees_test {
using namespace test;
using test::HeldStream;

struct Fixture {
    ~Fixture() {
        Frees::Lock lock{mutex};
        frees.clear(lock);
        CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    }
    void after_stream(Address address, StreamRef stream) {
        Frees::Place place{frees};
        REQUIRE(place.record(stream).ok());
        const Frees::Lock lock{mutex};
        frees.after_stream(address, 256, stream, place);
        frees.give_back(place);
    }
    /// Returns the number of blocks.
    std::size_t collected() {
        std::size_t blocks = 0;
        Frees::Lock lock{mutex};
        (void)frees.collect(lock, [&](Address) { blocks += 1; });
        return blocks;
    }

    FaultyDriver<HostDriver> driver{HostDriver{64_MiB}};
    const AnyDriver any{driver};
    std::mutex mutex;
    Frees frees{any};
};

TEST_CASE_FIXTURE(Fixture, "Frees: a stream has sixteen marks, however much waits") {
    const HeldStream work{driver};
    for (Address i = 1; i <= 20'000; ++i) after_stream(i * 0x100, work.get());
    CHECK(driver.outstanding().events <= 17);
    CHECK(driver.calls(Call::record) == 20'000); // each block has a later one
    work.finish();
    CHECK(collected() == 20'000);
    std::list<HeldStream> streams;
    for (int i = 0; i < 100; ++i) streams.emplace_back(driver);
    Address at = 0;
    for (const HeldStream& each : streams) after_stream(++at * 0x100, each.get());
    CHECK(driver.outstanding().events >= 100);
    CHECK(frees.streams() >= 100);
    for (const HeldStream& each : streams) each.finish();
    CHECK(collected() == 100);
    CHECK(driver.outstanding().events <= 64); // spare ones
    CHECK(frees.streams() <= 16);
}
} // namespace heap_frees_test
