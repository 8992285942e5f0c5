// Closing and destroying, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations.hpp"

namespace failure_end_sweep_test {
using namespace test;

TEST_CASE("sweep: ending") { sweep_all(ending()); }

TEST_CASE("sweep: the life of a tag") { sweep_all(living()); }

TEST_CASE("sweep: what could not be given back goes with `close`, or with the last owner") {
    Sweep through{.policies = some_policies(1, {"pinned"}), .kinds = {StatusKind::other}};
    through.setting = {.name = "then closed", .then = Setting::Then::closes};
    for (const auto& operations : {repeatable(), living()}) sweep_all(operations, through);
    through.setting = {.name = "then ended", .then = Setting::Then::ends};
    for (const auto& operations : {repeatable(), living()}) sweep_all(operations, through);
}

TEST_CASE("sweep: dying") { sweep_all(dying()); }
} // namespace failure_end_sweep_test
