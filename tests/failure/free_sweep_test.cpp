// Freeing and trimming, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_memory.hpp"

namespace failure_free_sweep_test {
using namespace test;

TEST_CASE("sweep: freeing") { sweep_all(freeing()); }
} // namespace failure_free_sweep_test
