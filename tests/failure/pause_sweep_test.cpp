// Pausing and preparing, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_pausing.hpp"

namespace failure_pause_sweep_test {
using namespace test;

TEST_CASE("sweep: pausing") { sweep_all(pausing()); }
} // namespace failure_pause_sweep_test
