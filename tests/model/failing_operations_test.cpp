// Random operations over all policies while driver calls fail, compared with a simple model.
#include "support/player.hpp"
#include "support/random.hpp"
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

} // namespace model_failing_operations_test
