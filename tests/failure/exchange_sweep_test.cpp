// Exchanges, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations.hpp"

namespace failure_exchange_sweep_test {
using namespace test;

TEST_CASE("sweep: exchanging, under every sort of policy") {
    sweep_all(only(exchanging(), {"exchange: out", "exchange: in"}),
              {.policies = some_policies(1, {"discard", "discard, poisoned", "zero", "pinned", "pageable, given back",
                                             "file, once", "pinned, verified", "pinned, compressed"}),
               .kinds = {StatusKind::other, StatusKind::gone}});
}

TEST_CASE("sweep: exchanging, with and without room") {
    sweep_all(exchanging(), {.policies = some_policies(1, {"pinned"}),
                             .kinds = {StatusKind::out_of_memory, StatusKind::out_of_host_memory, StatusKind::other}});
}
} // namespace failure_exchange_sweep_test
