// Resuming, and queries of paused memory, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_pausing.hpp"

namespace failure_resume_sweep_test {
using namespace test;

TEST_CASE("sweep: resuming") { sweep_all(resuming()); }
} // namespace failure_resume_sweep_test
