// One tag steps aside for another, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_pausing.hpp"

namespace failure_exchange_sweep_test {

using namespace test;

TEST_CASE("sweep: exchanging") {
    sweep_all(exchanging(), {.policies = some_policies(1, {"discard", "discard, poisoned", "zero", "pinned",
                                                           "pageable, given back", "file, once", "pinned, verified"})});
}

} // namespace failure_exchange_sweep_test
