// Blocks behind single handles, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_elastic.hpp"
#include "failure/operations_memory.hpp"
#include "failure/operations_pausing.hpp"

namespace failure_single_handle_sweep_test {
using namespace test;

TEST_CASE("sweep: blocks behind single handles") {
    const Sweep sweep{.policies = some_policies(1, {"pinned"}),
                      .kinds = {StatusKind::other, StatusKind::out_of_memory},
                      .setting = {.name = "single handles", .single_handle = true}};
    for (const auto& operations : {allocating(), pausing(), resuming(), exchanging(), elastic()})
        sweep_all(operations, sweep);
}
} // namespace failure_single_handle_sweep_test
