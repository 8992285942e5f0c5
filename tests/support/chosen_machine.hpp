// Which machine this run of a test program is for, chosen with --machine=host|nasty|cuda, and how a test case says on
// which machines it runs. main.cpp reads the option and leaves out the cases of other machines.
#pragma once

#include <doctest/doctest.h>

namespace test {

enum class MachineKind : unsigned char { host, nasty, cuda };

/// The machine that the program was started for.
MachineKind chosen_machine() noexcept;

/// Decorators of a case: `TEST_CASE("..." * on_machines)`. A case without one runs once, with the program's default
/// machine: `host`, or `cuda` in tests/gpu. Kept as the case's suite, which doctest can filter and prints on failure.
struct RunsOn {
    const char* machines;
    void fill(doctest::detail::TestCase& state) const { state.m_test_suite = machines; }
};

inline constexpr RunsOn on_machines{"host+nasty+cuda"};
inline constexpr RunsOn on_hosts{"host+nasty"}; // needs what only a HostDriver does
inline constexpr RunsOn on_quick{"host+cuda"};  // moves too much memory to poison it
} // namespace test
