// Allocating, freeing and trimming, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_memory.hpp"

namespace failure_memory_sweep_test {
using namespace test;

TEST_CASE("sweep: allocating") { sweep_all(allocating()); }

TEST_CASE("sweep: freeing") { sweep_all(freeing()); }
} // namespace failure_memory_sweep_test
