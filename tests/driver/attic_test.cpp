// What could not be closed is kept, and closed again.
#include "support/machines.hpp"

namespace driver_attic_test {
using namespace test;

/// `close` fails a few times.
struct Stubborn final : Closable {
    Stubborn(int failures, int& alive) : failures_{failures}, alive_{alive} { ++alive_; }
    ~Stubborn() override { --alive_; }
    Status close() noexcept override { return failures_-- > 0 ? Status{StatusKind::other, 7, "stubborn"} : Status{}; }

private:
    int failures_;
    int& alive_;
};

TEST_CASE("Attic: keeps objects that cannot be closed until they can be") {
    int alive = 0;
    {
        Attic attic;
        CHECK(attic.add(std::make_shared<Stubborn>(0, alive)).ok());
        CHECK(attic.empty());
        CHECK(alive == 0);
        CHECK(attic.add(std::make_shared<Stubborn>(2, alive)).code == 7);
        CHECK(attic.add(std::make_shared<Stubborn>(3, alive)).code == 7);
        CHECK(attic.add(std::make_shared<Stubborn>(100, alive)).code == 7);
        CHECK(!attic.empty());
        CHECK(alive == 3);
        CHECK(attic.retry().code == 7);
        CHECK(alive == 3);
        CHECK(!attic.retry().ok());
        CHECK(alive == 2);
        CHECK(!attic.retry().ok());
        CHECK(alive == 1);
    }
    CHECK(alive == 0); // they end it
}

TEST_CASE("Attic: what is added twice is kept once, and ends") {
    int alive = 0;
    {
        Attic attic;
        const auto twice = std::make_shared<Stubborn>(100, alive);
        CHECK(!attic.add(twice).ok());
        CHECK(!attic.add(std::make_shared<Stubborn>(100, alive)).ok());
        CHECK(!attic.add(twice).ok());
        CHECK(!attic.retry().ok());
        CHECK(alive == 2);
    }
    CHECK(alive == 0);
}
} // namespace driver_attic_test
