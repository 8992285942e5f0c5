// Replaces operator new for this test program.
#include "failing_new.hpp"
#include "support/failing_operators.hpp"
#include "support/machines.hpp"

namespace no_memory_failing_new_test {

TEST_CASE("operator new fails when it is told to, once for each allocation") {
    struct alignas(64) Line {
        int value = 0;
    };
    std::vector<int> one;
    std::unique_ptr<Line> two;
    int unchanged = 0;
    const int failures = no_memory::sweep(
        [&] {
            one = std::vector<int>(10);
            two = std::make_unique<Line>();
        },
        [&] { ++unchanged; });
    CHECK(failures == 2);
    CHECK(unchanged == 2);
}
} // namespace no_memory_failing_new_test
