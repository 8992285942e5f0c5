// Arrivals, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_arriving.hpp"

namespace failure_arrival_sweep_test {
using namespace test;

TEST_CASE("sweep: arriving, under every sort of policy") {
    sweep_all(arriving(), {.policies = some_policies(1, {"zero", "pinned", "pageable, given back", "file, once",
                                                         "pinned, verified", "pinned, compressed"}),
                           .kinds = {StatusKind::other, StatusKind::gone}});
}

TEST_CASE("sweep: arriving, without memory") {
    sweep_all(arriving(), {.policies = some_policies(1, {"pinned"}),
                           .kinds = {StatusKind::out_of_memory, StatusKind::out_of_host_memory}});
}
} // namespace failure_arrival_sweep_test
