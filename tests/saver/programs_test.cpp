// Runs the design's programs.
#include "support/machines.hpp"
#include "support/programs.hpp"

namespace saver_programs_test {
using namespace test;

TEST_CASE_FIXTURE(OnMachine, "the programs of the design" * on_machines) {
    const auto device = [&](int) { return machine.driver; };
    const OwnStream stream{machine.driver};
    SUBCASE("1") { program_1_pause_and_resume(device); }
    SUBCASE("2") { program_2_policies(device); }
    SUBCASE("3") { program_3_raw_allocation(device, stream); }
    SUBCASE("4") {
        std::ostringstream out;
        program_4_many_tags(device, out);
        CHECK(contains(out.str(), "weights"));
        CHECK(contains(out.str(), "released 8.00 MiB"));
    }
    SUBCASE("5") { program_5_order(device, stream); }
    SUBCASE("6") { program_6_one_arena<MachineDriver>(device); }
    SUBCASE("7") { program_7_cuda_graphs(device, stream); }
    SUBCASE("8") { program_8_workspaces(device); }
    SUBCASE("9") { program_9_what_other_allocators_keep(device); }
    SUBCASE("11") { program_11_switched_off(device); }
    SUBCASE("13") { program_13_held_by_a_class(device); }
    SUBCASE("14") { program_14_stream_ordered(device, StreamRef{}); }
    SUBCASE("15") { program_15_the_life_of_a_tag(device); }
    SUBCASE("16") { program_16_saving_ahead(device); }
    SUBCASE("17") { program_17_streamed_resume(device, StreamRef{}); }
    SUBCASE("18") { program_18_exchange(device); }
    SUBCASE("20") { program_20_residency(device, StreamRef{}); }
    SUBCASE("21") { program_21_elastic_memory(device); }
    SUBCASE("22") { program_22_bytes_of_a_file(device, SomeFile{}.path(), 4096, 1_MiB); }
    SUBCASE("23") { program_23_an_update_while_away(device); }
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
