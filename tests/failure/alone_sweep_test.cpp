// An arena with a saver of its own, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_alone.hpp"

namespace failure_alone_sweep_test {
using namespace test;

TEST_CASE("sweep: one arena") { sweep_all(of_one_arena()); }
} // namespace failure_alone_sweep_test
