// What blocks that wait for streams cost, however many they are.
#include "memsaver/heap/frees.hpp"
#include "support/machines.hpp"

#include <array>
#include <list>
#include <set>
#include <thread>

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

TEST_CASE("SpareEvents: at most 64 are kept, and each is given to one thread") {
    SpareEvents spare;
    std::size_t refused = 0;
    for (std::uintptr_t i = 1; i <= 100; ++i) refused += spare.exchange(reinterpret_cast<HostEvent*>(i)) ? 1U : 0U;
    CHECK(refused == 36);
    std::array<std::vector<void*>, 4> taken;
    std::vector<std::thread> threads;
    for (std::vector<void*>& mine : taken) {
        threads.emplace_back([&] {
            for (EventRef event; (event = spare.exchange({}));) mine.push_back(event.native());
        });
    }
    for (std::thread& each : threads) each.join();
    std::set<void*> all;
    for (const std::vector<void*>& mine : taken) all.insert(mine.begin(), mine.end());
    CHECK(all.size() == 64);
    CHECK(taken[0].size() + taken[1].size() + taken[2].size() + taken[3].size() == 64);
}
} // namespace heap_frees_test
