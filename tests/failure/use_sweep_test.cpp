// Uses and reclaims, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_residency.hpp"

namespace failure_use_sweep_test {

using namespace test;

TEST_CASE("sweep: using and reclaiming") { sweep_all(residency()); }

} // namespace failure_use_sweep_test
