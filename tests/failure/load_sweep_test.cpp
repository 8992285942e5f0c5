// Loads from files, and operations on loaded memory, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations.hpp"

namespace failure_load_sweep_test {
using namespace test;

// "swept" is not involved.
TEST_CASE("sweep: loading from files") {
    sweep_all(loading(), {.policies = some_policies(1, {"zero"}), .kinds = {StatusKind::other, StatusKind::gone}});
}

TEST_CASE("sweep: loading from files, without memory") {
    sweep_all(
        only(loading(), {"load", "load: resume", "load: pause, of bytes that the file no longer has"}),
        {.policies = some_policies(1, {"zero"}), .kinds = {StatusKind::out_of_memory, StatusKind::out_of_host_memory}});
}
} // namespace failure_load_sweep_test
