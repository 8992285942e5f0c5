// Runs the design's programs.
#include "support/machines.hpp"
#include "support/programs.hpp"

namespace saver_programs_test {
using namespace test;

TEST_CASE_FIXTURE(OnMachine, "the programs of the design" * on_machines) {
    const OwnStream stream{machine.driver};
    const SomeFile file;
    std::ostringstream out;
    all_programs<MachineDriver>([&](int) { return machine.driver; }, stream, out, file.path());
    CHECK(contains(out.str(), "weights"));
    CHECK(contains(out.str(), "released 8.00 MiB"));
}

TEST_CASE("programs 10 and 19, on two host machines") {
    const Checked first{host_machine, 0};
    const Checked second{host_machine, 1};
    const auto device = [&](int number) { return number == 0 ? first.driver : second.driver; };
    program_10_several_devices(device);
    program_19_a_neighbours_memory(device);
}

TEST_CASE("program 12") {
    bool ran = false;
    program_12_the_machine_at_hand([&](auto& saver) {
        (void)saver.arena("tag").allocate(1_MiB);
        ran = saver.pause("tag").released_bytes > 0;
    });
    CHECK(ran);
}
} // namespace saver_programs_test
