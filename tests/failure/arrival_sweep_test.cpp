// Bytes that are on their way, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_arriving.hpp"

namespace failure_arrival_sweep_test {

using namespace test;

TEST_CASE("sweep: arriving") { sweep_all(arriving()); }

} // namespace failure_arrival_sweep_test
