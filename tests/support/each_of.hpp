// Fixtures whose cases run once for each of several values.
#pragma once

#include "support/machines.hpp"

#include <optional>
#include <string>
#include <vector>

namespace test {

/// One of the values: the case runs once for each, as a subcase of that name. For cases without other subcases.
template <class T, class Name>
T each_of(const std::vector<T>& all, Name name_of) {
    std::optional<T> chosen;
    for (const T& each : all) SUBCASE(std::string{name_of(each)}.c_str()) chosen = each;
    REQUIRE(chosen);
    return *chosen;
}

/// Once with a saver that is switched on, and once with one that is not.
struct OnEither : OnMachine {
    const bool enabled = each_of(std::vector<bool>{true, false}, [](bool on) { return on ? "on" : "off"; });
    MemorySaver<MachineDriver> saver{machine.driver, {.enabled = enabled}};
};

/// A stream that a case captures, once in each mode.
struct OnMode : OnStream {
    const CaptureMode mode = each_of(std::vector{CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed},
                                     [](CaptureMode each) { return std::to_string(static_cast<int>(each)); });
};
} // namespace test
