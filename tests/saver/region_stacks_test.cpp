// Which region each thread is in.
#include "memsaver/memsaver.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace saver_region_stacks_test {

using namespace memsaver;

namespace {

struct Fixture {
    HostDriver driver{2_MiB};
    PlainArena<HostDriver> a{driver, "a", {}};
    PlainArena<HostDriver> b{driver, "b", {}};
    RegionStacks stacks;
    int regions[8] = {};
};

} // namespace

TEST_CASE_FIXTURE(Fixture, "the innermost is the one entered last") {
    CHECK(stacks.innermost() == nullptr);
    stacks.enter(a, &regions[0]);
    CHECK(stacks.innermost() == &a);
    stacks.enter(b, &regions[1]);
    CHECK(stacks.innermost() == &b);
    CHECK(stacks.leave(&regions[1]));
    CHECK(stacks.innermost() == &a);
    CHECK(stacks.leave(&regions[0]));
    CHECK(stacks.innermost() == nullptr);
    CHECK(!stacks.leave(&regions[0]));
}

TEST_CASE_FIXTURE(Fixture, "leaving out of order takes out just that region") {
    stacks.enter(a, &regions[0]);
    stacks.enter(b, &regions[1]);
    stacks.enter(a, &regions[2]);
    CHECK(!stacks.leave(&regions[1]));
    CHECK(stacks.innermost() == &a);
    CHECK(stacks.leave(&regions[2]));
    CHECK(stacks.innermost() == &a);
    CHECK(stacks.leave(&regions[0]));
    CHECK(stacks.innermost() == nullptr);
}

TEST_CASE_FIXTURE(Fixture, "a region can be left on another thread") {
    stacks.enter(a, &regions[0]);
    std::thread{[&] {
        CHECK(stacks.innermost() == nullptr);
        CHECK(!stacks.leave(&regions[0]));
    }}.join();
    CHECK(stacks.innermost() == nullptr);
}

TEST_CASE_FIXTURE(Fixture, "many threads at once") {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            ArenaBase& mine = t % 2 == 0 ? static_cast<ArenaBase&>(a) : b;
            for (int i = 0; i < 2000; ++i) {
                stacks.enter(mine, &regions[t]);
                wrong += stacks.innermost() != &mine ? 1 : 0;
                wrong += stacks.leave(&regions[t]) ? 0 : 1;
                wrong += stacks.innermost() != nullptr ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
}

} // namespace saver_region_stacks_test
