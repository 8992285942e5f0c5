// Fixtures whose cases run once for each of several values.
#pragma once

#include "support/machines.hpp"

#include <optional>
#include <string>
#include <vector>

namespace test {

/// What a value is called: by its name, as a text shows it, or as a number.
template <class T>
std::string called(const T& value) {
    if constexpr (requires { std::string{value.name}; }) {
        return value.name;
    } else if constexpr (requires { std::string{value}; }) {
        return std::string{value};
    } else if constexpr (std::is_same_v<T, Call>) {
        return call_name(value);
    } else if constexpr (requires { value.describe(); }) {
        return value.describe();
    } else {
        return std::to_string(static_cast<long>(value));
    }
}

/// One of the values: the case runs once for each, as a subcase of that name. For cases without other subcases.
template <class T>
T each_of(const std::vector<T>& all) {
    std::optional<T> chosen;
    for (const T& value : all) SUBCASE(called(value).c_str()) chosen = value;
    REQUIRE(chosen);
    return *chosen;
}
template <class T>
T each_of(std::initializer_list<T> all) {
    return each_of(std::vector<T>{all});
}

/// True and then false, as subcases of these names.
inline bool either(const char* yes, const char* no) { return each_of({yes, no}) == std::string{yes}; }

/// Once with a saver that is switched on, and once with one that is not.
struct OnEither : OnMachine {
    const bool enabled = either("on", "off");
    MemorySaver<MachineDriver> saver{machine.driver, {.enabled = enabled}};
};

/// A stream that a case captures, once in each mode.
struct OnMode : OnStream {
    const CaptureMode mode = each_of({CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed});
};
} // namespace test
