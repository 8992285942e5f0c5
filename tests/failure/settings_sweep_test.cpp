// The same operations on savers and policies with other options: disabled, with hooks, with checks, with an engine's
// threads.
#include "failure/operations.hpp"

namespace failure_settings_sweep_test {
using namespace test;

TEST_CASE("sweep: switched off") {
    Sweep through;
    through.policies = {{"pinned", HostBackup{.threads = 1}, Becomes::kept}}; // not used
    through.setting = {.name = "switched off", .enabled = false};
    for (const auto& group :
         {allocating(), freeing(), pausing(), resuming(), arriving(), residency(), exchanging(), ending(), living(),
          dying(), graphs(), workspaces(), with_hooks(), elastic(), only(loading(), {"load", "load: a part"})}) {
        sweep_all(group, through);
    }
}

TEST_CASE("sweep: hooks") { sweep_all(with_hooks(), {.policies = some_policies(1)}); }

TEST_CASE("sweep: checks, and an engine's threads") {
    const Sweep through{.policies = checked_and_executed(),
                        .kinds = {StatusKind::other, StatusKind::gone},
                        .setting = {.name = "checked, or by an executor"}};
    sweep_all(
        only(pausing(), {"pause: the first", "pause: a later one, of changed bytes",
                         "pause: a later one, of the same bytes", "pause: the part that is not paused yet", "prepare"}),
        through);
    sweep_all(only(resuming(), {"resume", "resume: batches with holes"}), through);
}
} // namespace failure_settings_sweep_test
