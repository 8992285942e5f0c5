// Pausing and preparing, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations.hpp"

using namespace test;

TEST_CASE("sweep: pausing") { sweep_all(pausing()); }
