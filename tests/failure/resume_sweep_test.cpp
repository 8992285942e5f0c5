// Resuming, and what is asked of paused memory, under every policy, with the 1st, 2nd, ... last call failing in each
// way.
#include "failure/operations_pausing.hpp"

using namespace test;

TEST_CASE("sweep: resuming") { sweep_all(resuming()); }
