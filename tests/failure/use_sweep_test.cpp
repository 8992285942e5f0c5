// Uses and reclaims, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_residency.hpp"

namespace failure_use_sweep_test {
using namespace test;

TEST_CASE("sweep: using and reclaiming, under every sort of policy") {
    sweep_all(residency(), {.policies = some_policies(1), .kinds = {StatusKind::other, StatusKind::gone}});
}

TEST_CASE("sweep: using and reclaiming, without memory") {
    sweep_all(residency(), {.policies = some_policies(1, {"pinned"}),
                            .kinds = {StatusKind::out_of_memory, StatusKind::out_of_host_memory}});
}

TEST_CASE("sweep: evictions for allocations and resumes") {
    const Setting evicts{.name = "evicting", .evicts = true};
    sweep_all(evicting(),
              {.policies = some_policies(1), .kinds = {StatusKind::other, StatusKind::gone}, .setting = evicts});
    sweep_all(evicting(), {.policies = some_policies(1, {"pinned"}),
                           .kinds = {StatusKind::out_of_memory, StatusKind::out_of_host_memory},
                           .setting = evicts});
}
} // namespace failure_use_sweep_test
