// Random operations over all policies while driver calls fail, against a simple model.
#include "support/model.hpp"
#include "support/player.hpp"

#include <doctest/doctest.h>

#include <cstdint>

using namespace test;

TEST_CASE("random operations with failures: nothing is lost, whatever fails") {
    std::uint64_t injected = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Random random{seed};
        FailingPlayer<Random> player{random, seed % 4 == 0};
        const auto play = [&] {
            for (int i = 0; i < 300; ++i) player.step();
            player.end();
        };
        CHECK_NOTHROW(play());
        injected += player.injected();
    }
    CHECK(injected > 1000); // calls did fail
    MESSAGE("seeds 1 to 40, " << injected << " calls failed");
}
