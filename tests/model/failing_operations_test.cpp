// Random operations over all policies while driver calls fail, compared with a simple model.
#include "support/model.hpp"
#include "support/player.hpp"
#include "support/sampling.hpp"

#include <cstdint>
#include <doctest/doctest.h>

namespace model_failing_operations_test {
using namespace test;

TEST_CASE("random operations with failures: nothing is lost, whatever fails") {
    std::uint64_t injected = 0;
    std::uint64_t seeds = 0;
    for (std::uint64_t seed = 1 + sampling().first(8); seed <= 40; seed += sampling().stride(8)) {
        seeds += 1;
        CAPTURE(seed);
        Random random{seed};
        Player<Random> player{random};
        const auto play = [&] {
            for (int i = 0; i < 300; ++i) player.step();
            player.end();
        };
        CHECK_NOTHROW(play());
        injected += player.injected();
    }
    CHECK(injected > 25 * seeds); // calls did fail
    MESSAGE("seeds 1 to 40" << (sampling().all() ? "" : ", a sample") << ", " << injected << " calls failed");
}

TEST_CASE("only objects whose closing call failed may be left in the end") {
    using D = FaultyDriver<HostDriver>;
    const D driver{HostDriver{64_MiB}};
    StreamRef stream;
    EventRef event;
    void* pages = nullptr;
    REQUIRE(driver.open_stream(stream).ok());
    CHECK(!left_without_reason(driver).empty()); // no call failed before
    driver.fail({.call = Call::close_stream});
    CHECK(!driver.close_stream(stream).ok());
    CHECK(left_without_reason(driver).empty());
    REQUIRE(driver.open_event(stream, event).ok());
    CHECK(!left_without_reason(driver).empty()); // the failed call was a stream's
    CHECK(driver.close_event(event).ok());
    REQUIRE(driver.map_host(2_MiB, pages).ok());
    driver.fail({.call = Call::unmap_host});
    CHECK(!driver.unmap_host(pages, 2_MiB).ok());
    CHECK(!left_without_reason(driver).empty()); // must be retried
    CHECK(driver.unmap_host(pages, 2_MiB).ok());
    CHECK(left_without_reason(driver).empty());
    CHECK(driver.close_stream(stream).ok());
}
} // namespace model_failing_operations_test
