// A tag on two devices, of which the failing one is the saver's own or the other one.
#include "failure/operations_devices.hpp"

namespace failure_devices_sweep_test {
using namespace test;

TEST_CASE("sweep: two devices") {
    Sweep through{.policies = some_policies(1, {"zero", "pinned", "file, once"}),
                  .kinds = {StatusKind::other, StatusKind::out_of_memory, StatusKind::gone}};
    through.setting = {.name = "another is well", .well = Setting::Well::other};
    sweep_all(on_devices(), through);
    through.setting = {.name = "the saver's own is well", .well = Setting::Well::own};
    sweep_all(on_devices(), through);
}
} // namespace failure_devices_sweep_test
