// Pausing and preparing, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_pausing.hpp"

using namespace test;

TEST_CASE("sweep: pausing") { sweep_all(pausing()); }
