// Elastic memory, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_elastic.hpp"

namespace failure_elastic_sweep_test {
using namespace test;

TEST_CASE("sweep: elastic memory, under every sort of policy") {
    sweep_all(elastic(), {.policies = some_policies(1), .kinds = {StatusKind::other, StatusKind::gone}});
}

TEST_CASE("sweep: elastic memory, without memory") {
    sweep_all(elastic(), {.policies = some_policies(1, {"pinned"}),
                          .kinds = {StatusKind::out_of_memory, StatusKind::out_of_host_memory}});
}
} // namespace failure_elastic_sweep_test
