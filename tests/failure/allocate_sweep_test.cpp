// Taking memory, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_memory.hpp"

using namespace test;

TEST_CASE("sweep: allocating") { sweep_all(allocating()); }
