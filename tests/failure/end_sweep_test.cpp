// Closing and destroying, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_ending.hpp"

namespace failure_end_sweep_test {
using namespace test;

TEST_CASE("sweep: ending") { sweep_all(ending()); }

TEST_CASE("sweep: the life of a tag") { sweep_all(living()); }

TEST_CASE("sweep: dying") { sweep_all(dying()); }
} // namespace failure_end_sweep_test
